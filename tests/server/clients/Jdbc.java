// What DBeaver and other Java tools do over pgjdbc: metadata, catalog queries, prepared statements, cursors and COPY.
// Prints what it found, a line for each step; `java -cp postgresql.jar Jdbc.java URL USER PASSWORD`.
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.*;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;

public class Jdbc {
    interface Rows { ResultSet ask() throws SQLException; }

    static void told(String what, Rows rows, String... columns) throws SQLException {
        List<String> found = new ArrayList<>();
        try (ResultSet each = rows.ask()) {
            while (each.next()) {
                List<String> values = new ArrayList<>();
                for (String column : columns) values.add(each.getString(column));
                found.add(String.join(" ", values));
            }
        }
        System.out.println(what + ": " + String.join(", ", found));
    }

    public static void main(String[] given) throws Exception {
        try (Connection db = DriverManager.getConnection(given[0], given[1], given[2])) {
            metadata(db);
            catalog(db);
            statements(db);
            cursor(db);
            copy(db);
        }
    }

    static void metadata(Connection db) throws SQLException {
        DatabaseMetaData about = db.getMetaData();
        db.setClientInfo("ApplicationName", "a client");
        System.out.println("product: " + about.getDatabaseProductName() + " " + about.getDatabaseMajorVersion() + ", valid " + db.isValid(5));
        System.out.println("limits: " + about.getMaxColumnsInIndex() + " " + about.getMaxColumnNameLength() + " " + about.getDefaultTransactionIsolation() + " " + about.getSQLKeywords().contains("abort"));
        told("catalogs", about::getCatalogs, "TABLE_CAT");
        told("schemas", about::getSchemas, "TABLE_SCHEM");
        told("kinds", about::getTableTypes, "TABLE_TYPE");
        told("tables", () -> about.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME", "TABLE_TYPE");
        told("columns", () -> about.getColumns(null, "public", "t", "%"), "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE", "ORDINAL_POSITION");
        told("key", () -> about.getPrimaryKeys(null, "public", "keyed"), "COLUMN_NAME", "KEY_SEQ");
        told("row id", () -> about.getBestRowIdentifier(null, "public", "keyed", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME");
        told("indexes", () -> about.getIndexInfo(null, "public", "keyed", false, false), "COLUMN_NAME", "NON_UNIQUE");
        told("imported", () -> about.getImportedKeys(null, "public", "t"), "FKTABLE_NAME");
        told("exported", () -> about.getExportedKeys(null, "public", "t"), "FKTABLE_NAME");
        told("functions", () -> about.getFunctions(null, "public", "%"), "FUNCTION_NAME");
        told("procedures", () -> about.getProcedures(null, "public", "%"), "PROCEDURE_NAME");
        told("privileges", () -> about.getTablePrivileges(null, "public", "t"), "GRANTEE");
        try (ResultSet types = about.getTypeInfo()) {
            Set<String> names = new TreeSet<>();
            while (types.next()) names.add(types.getString("TYPE_NAME"));
            System.out.println("types: " + names.containsAll(List.of("bool", "int4", "int8", "float8", "text", "timestamp", "numeric", "_int4")));
        }
    }

    // What the navigator of DBeaver asks of pg_catalog, schema by schema and table by table.
    static void catalog(Connection db) throws SQLException {
        List<String> asked = List.of(
            "SELECT current_schema(),session_user", "SHOW search_path", "SELECT version()",
            "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname =? ORDER BY db.datname",
            "SELECT * FROM pg_catalog.pg_settings where name=?",
            "SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 AND d.classoid='pg_namespace'::regclass ORDER BY nspname",
            "SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem "
                + "LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')",
            "SELECT a.oid,a.* FROM pg_catalog.pg_roles a ORDER BY a.rolname", "SELECT t.oid,t.*,pg_tablespace_location(t.oid) loc FROM pg_catalog.pg_tablespace t ORDER BY t.oid",
            "SELECT l.oid,l.* FROM pg_catalog.pg_language l ORDER BY l.oid", "SELECT am.oid,am.* FROM pg_catalog.pg_am am ORDER BY am.oid", "SELECT x.oid,x.* FROM pg_catalog.pg_event_trigger x ORDER BY x.evtname",
            "SELECT e.oid,e.*,n.nspname as schema_name FROM pg_catalog.pg_extension e JOIN pg_namespace n on n.oid =e.extnamespace ORDER BY e.oid",
            "SELECT c.oid,c.*,d.description,pg_catalog.pg_get_expr(c.relpartbound, c.oid) as partition_expr, pg_catalog.pg_get_partkeydef(c.oid) as partition_key FROM pg_catalog.pg_class c "
                + "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_class'::regclass WHERE c.relnamespace=? AND c.relkind not in ('i','I','c')",
            "SELECT c.relname,a.*,pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) as def_value,dsc.description,dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid=c.oid) "
                + "LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid=ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid=dsc.objoid AND a.attnum = dsc.objsubid) "
                + "LEFT OUTER JOIN pg_depend dep on dep.refobjid = a.attrelid AND dep.deptype = 'i' and dep.refobjsubid = a.attnum and dep.classid = dep.refclassid WHERE NOT a.attisdropped AND c.oid=? ORDER BY a.attnum",
            "SELECT c.oid,c.*,t.relname as tabrelname,rt.relnamespace as refnamespace,d.description, null as consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid=c.conrelid "
                + "LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid=c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 AND d.classoid='pg_constraint'::regclass WHERE c.conrelid=? ORDER BY c.oid",
            "SELECT i.*,i.indkey as keys,c.relname,c.relnamespace,c.relam,c.reltablespace,tc.relname as tabrelname,dsc.description,pg_catalog.pg_get_expr(i.indpred, i.indrelid) as pred_expr,pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) as expr,"
                + "pg_catalog.pg_relation_size(i.indexrelid) as index_rel_size,pg_catalog.pg_stat_get_numscans(i.indexrelid) as index_num_scans FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid=i.indexrelid "
                + "INNER JOIN pg_catalog.pg_class tc ON tc.oid=i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid=dsc.objoid WHERE i.indrelid=? ORDER BY tabrelname, c.relname",
            "SELECT i.*,c.relnamespace FROM pg_catalog.pg_inherits i,pg_catalog.pg_class c WHERE i.inhrelid=? AND c.oid=i.inhparent ORDER BY i.inhseqno",
            "SELECT x.oid,x.*,p.pronamespace as func_schema_id,d.description FROM pg_catalog.pg_trigger x LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid=x.tgfoid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=x.oid AND d.objsubid=0 WHERE x.tgrelid=? AND NOT x.tgisinternal",
            "SELECT r.oid,r.* FROM pg_catalog.pg_rewrite r WHERE r.ev_class=? ORDER BY r.rulename",
            "SELECT pol.oid,pol.* FROM pg_catalog.pg_policy pol WHERE pol.polrelid=?",
            "SELECT DISTINCT dep.deptype, dep.classid, dep.objid, cl.relkind, attr.attname,pg_get_expr(ad.adbin, ad.adrelid) adefval FROM pg_depend dep LEFT JOIN pg_class cl ON dep.objid=cl.oid LEFT JOIN pg_attribute attr ON dep.objid=attr.attrelid AND dep.objsubid=attr.attnum "
                + "LEFT JOIN pg_attrdef ad ON ad.oid=dep.objid WHERE dep.refobjid=? ORDER BY dep.classid",
            "select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,pg_catalog.pg_relation_size(c.oid) as rel_size FROM pg_class c WHERE c.relnamespace=?",
            "SELECT p.oid,p.*,l.lanname,d.description FROM pg_catalog.pg_proc p LEFT OUTER JOIN pg_catalog.pg_language l ON l.oid=p.prolang LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=p.oid WHERE p.pronamespace=? ORDER BY p.proname",
            "SELECT pg_catalog.pg_get_viewdef(?,true)", "SELECT x.oid, x.* FROM pg_catalog.pg_operator x LIMIT 1", "SELECT sa.* FROM pg_catalog.pg_stat_activity sa", "SELECT seq.* FROM pg_catalog.pg_sequences seq WHERE schemaname='public'",
            "SELECT x.* FROM pg_catalog.pg_collation x ORDER BY x.oid", "SELECT l.* FROM pg_catalog.pg_locks l", "SELECT c.relname,c.relkind FROM pg_catalog.pg_class c WHERE c.relkind in('r','v','m') AND c.relname ILIKE ? LIMIT 20");
        long schema = 0, table = 0;
        try (Statement each = db.createStatement(); ResultSet found = each.executeQuery("SELECT c.relnamespace, c.oid FROM pg_catalog.pg_class c WHERE c.relname='busy'")) {
            found.next();
            schema = found.getLong(1);
            table = found.getLong(2);
        }
        for (String text : asked) {
            try (PreparedStatement each = db.prepareStatement(text)) {
                if (text.contains("?")) {
                    if (text.contains("datname") || text.contains("name=?") || text.contains("ILIKE")) each.setString(1, text.contains("name=?") ? "standard_conforming_strings" : "millstream");
                    else each.setLong(1, text.contains("namespace=?") ? schema : table);
                }
                try (ResultSet rows = each.executeQuery()) {
                    int count = 0;
                    for (; rows.next(); count++) for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) rows.getObject(i);
                    System.out.println("asked " + count + ": " + text.substring(0, Math.min(60, text.length())));
                }
            } catch (SQLException error) {
                System.out.println("FAILED " + text + "\n  " + error.getMessage());
            }
        }
    }

    static void statements(Connection db) throws SQLException {
        told("simple", () -> db.createStatement().executeQuery("SELECT a, b, f FROM t ORDER BY a LIMIT 2"), "a", "b", "f");
        try (PreparedStatement each = db.prepareStatement("SELECT a, b, c, d, e, f, h FROM t WHERE a = ? AND f = ? AND b >= ?")) {
            for (int i = 0; i < 8; i++) {  // values come in binary form from the fifth time on
                each.setInt(1, 1);
                each.setString(2, "ü'x");
                each.setBigDecimal(3, new BigDecimal("2.50"));
                try (ResultSet row = each.executeQuery()) {
                    row.next();
                    String found = row.getInt(1) + " " + row.getBigDecimal(2) + " " + row.getBoolean(3) + " " + row.getDate(4) + " " + row.getDouble(5) + " " + row.getString(6) + " " + row.getTimestamp(7).toInstant();
                    if (i == 0 || i == 7) System.out.println("prepared: " + found);
                    if (i == 7) System.out.println("from: " + row.getMetaData().getColumnTypeName(2) + " " + row.getMetaData().getPrecision(2) + " " + row.getMetaData().isNullable(1));
                }
            }
        }
        try (PreparedStatement each = db.prepareStatement("INSERT INTO s VALUES (?, ?, ?)")) {
            for (int i = 0; i < 3; i++) {
                each.setInt(1, i);
                each.setString(2, "row " + i);
                each.setTimestamp(3, Timestamp.valueOf("2026-01-01 10:00:0" + i));
                each.addBatch();
            }
            System.out.println("batch: " + Arrays.toString(each.executeBatch()));
        }
        told("view", () -> db.createStatement().executeQuery("SELECT count(*) AS n FROM HISTORY(s)"), "n");
        try {
            db.createStatement().executeQuery("SELECT a, nothing FROM t");
        } catch (PSQLException error) {
            System.out.println("error: " + error.getSQLState() + " at " + error.getServerErrorMessage().getPosition() + ", " + error.getServerErrorMessage().getMessage());
        }
    }

    static void cursor(Connection db) throws SQLException {
        db.setAutoCommit(false);
        try (Statement each = db.createStatement()) {
            each.setFetchSize(1000);
            try (ResultSet rows = each.executeQuery("SELECT i FROM range(10000) r(i) ORDER BY i")) {
                long sum = 0;
                while (rows.next()) sum += rows.getLong(1);
                System.out.println("fetched: " + sum);
            }
        }
        db.rollback();
        db.setAutoCommit(true);
    }

    static void copy(Connection db) throws Exception {
        var copies = db.unwrap(PGConnection.class).getCopyAPI();
        StringWriter out = new StringWriter();
        System.out.println("copied in: " + copies.copyIn("COPY s (v, name, ts) FROM STDIN WITH (FORMAT csv)", new StringReader("9,x,2026-01-01 10:00:09\n")));
        System.out.println("copied out: " + copies.copyOut("COPY (SELECT v FROM HISTORY(s) ORDER BY v) TO STDOUT", out) + " " + out.toString().replace("\n", " ").trim());
        try (Statement each = db.createStatement()) {
            each.setQueryTimeout(1);  // its end is asked for over another connection
            each.executeQuery("SUBSCRIBE TO (SELECT v FROM s)");
        } catch (PSQLException error) {
            System.out.println("cancelled: " + error.getSQLState());
        }
    }
}
