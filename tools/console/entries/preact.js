export { html, render } from "htm/preact";
export { useEffect, useMemo, useRef, useState } from "preact/hooks";
