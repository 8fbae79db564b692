import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.DeploymentOptions;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Standing statements of one shape in Esper: constants and quotes from files, events/s by processor time out. */
public final class EsperQueries {
    private static long found;

    public static void main(String[] given) throws Exception {
        List<String> constants = Files.readAllLines(Path.of(given[1]));
        List<Object[]> events = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(given[2]))) {
            String[] parts = line.split(",");
            events.add(new Object[] {parts[0], Double.parseDouble(parts[1])});
        }
        int warm = Integer.parseInt(given[3]);
        Configuration config = new Configuration();
        config.getCommon().addEventType("Quotes", new String[] {"symbol", "price"}, new Object[] {String.class, double.class});
        config.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPRuntime runtime = EPRuntimeProvider.getRuntime("queries", config);
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(given[0], new CompilerArguments(config));
        long begun = System.nanoTime();
        for (String line : constants) {
            String[] parts = line.split(",");
            DeploymentOptions options = new DeploymentOptions();
            options.setStatementSubstitutionParameter(env -> {
                env.setObject("symbol", parts[0]);
                env.setObject("low", Double.parseDouble(parts[1]));
            });
            runtime.getDeploymentService().deploy(compiled, options).getStatements()[0]
                .addListener((rows, old, statement, of) -> found += rows.length);
        }
        double started = (System.nanoTime() - begun) / 1e9;
        for (Object[] event : events.subList(0, warm)) {
            runtime.getEventService().sendEventObjectArray(event, "Quotes");
        }
        long before = found;
        long spent = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        for (Object[] event : events.subList(warm, events.size())) {
            runtime.getEventService().sendEventObjectArray(event, "Quotes");
        }
        spent = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - spent;
        int counted = events.size() - warm;
        System.out.println(counted / (spent / 1e9) + " " + (found - before) + " " + constants.size() / started);
        System.exit(0);
    }
}
