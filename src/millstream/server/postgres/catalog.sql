-- The system catalog that clients of PostgreSQL look at: pg_catalog as the schema pgc, information_schema as infs.
CREATE SCHEMA pgc;
CREATE SCHEMA infs;

CREATE TABLE pgc.pg_namespace (
    oid BIGINT, nspname VARCHAR, nspowner BIGINT, nspacl VARCHAR[]
);
CREATE TABLE pgc.pg_class (
    oid BIGINT, relname VARCHAR, relnamespace BIGINT, reltype BIGINT, reloftype BIGINT, relowner BIGINT, relam
    BIGINT, relfilenode BIGINT, reltablespace BIGINT, relpages INT, reltuples FLOAT, reltoastrelid BIGINT,
    relhasindex BOOLEAN, relisshared BOOLEAN, relpersistence VARCHAR, relkind VARCHAR, relnatts SMALLINT,
    relchecks SMALLINT, relhasrules BOOLEAN, relhastriggers BOOLEAN, relhassubclass BOOLEAN, relrowsecurity
    BOOLEAN, relforcerowsecurity BOOLEAN, relispopulated BOOLEAN, relreplident VARCHAR, relispartition
    BOOLEAN, relpartbound VARCHAR, relacl VARCHAR[], reloptions VARCHAR[]
);
CREATE TABLE pgc.pg_attribute (
    attrelid BIGINT, attname VARCHAR, atttypid BIGINT, attstattarget INT, attlen SMALLINT, attnum SMALLINT,
    attndims INT, atttypmod INT, attnotnull BOOLEAN, atthasdef BOOLEAN, attidentity VARCHAR, attgenerated
    VARCHAR, attisdropped BOOLEAN, attislocal BOOLEAN, attcollation BIGINT, attacl VARCHAR[], attoptions
    VARCHAR[], attfdwoptions VARCHAR[], attstorage VARCHAR, attcompression VARCHAR
);
CREATE TABLE pgc.pg_type (
    oid BIGINT, typname VARCHAR, typnamespace BIGINT, typowner BIGINT, typlen SMALLINT, typbyval BOOLEAN,
    typtype VARCHAR, typcategory VARCHAR, typispreferred BOOLEAN, typisdefined BOOLEAN, typdelim VARCHAR,
    typrelid BIGINT, typelem BIGINT, typarray BIGINT, typinput VARCHAR, typoutput VARCHAR, typreceive VARCHAR,
    typsend VARCHAR, typnotnull BOOLEAN, typbasetype BIGINT, typtypmod INT, typcollation BIGINT, typdefault
    VARCHAR
);
CREATE TABLE pgc.pg_database (
    oid BIGINT, datname VARCHAR, datdba BIGINT, encoding INT, datcollate VARCHAR, datctype VARCHAR,
    datlocprovider VARCHAR, daticulocale VARCHAR, daticurules VARCHAR, datcollversion VARCHAR, datistemplate
    BOOLEAN, datallowconn BOOLEAN, datconnlimit INT, dattablespace BIGINT, datacl VARCHAR[]
);
CREATE TABLE pgc.pg_roles (
    oid BIGINT, rolname VARCHAR, rolsuper BOOLEAN, rolinherit BOOLEAN, rolcreaterole BOOLEAN, rolcreatedb
    BOOLEAN, rolcanlogin BOOLEAN, rolreplication BOOLEAN, rolconnlimit INT, rolvaliduntil TIMESTAMP,
    rolbypassrls BOOLEAN
);
CREATE TABLE pgc.pg_settings (
    name VARCHAR, setting VARCHAR, unit VARCHAR, category VARCHAR, short_desc VARCHAR, context VARCHAR,
    vartype VARCHAR, source VARCHAR
);
CREATE TABLE pgc.pg_auth_members (
    oid BIGINT, roleid BIGINT, member BIGINT, grantor BIGINT, admin_option BOOLEAN
);
CREATE TABLE pgc.pg_am (
    oid BIGINT, amname VARCHAR, amhandler VARCHAR, amtype VARCHAR
);
CREATE TABLE pgc.pg_attrdef (
    oid BIGINT, adrelid BIGINT, adnum SMALLINT, adbin VARCHAR
);
CREATE TABLE pgc.pg_collation (
    oid BIGINT, collname VARCHAR, collnamespace BIGINT, collprovider VARCHAR, collcollate VARCHAR, collctype
    VARCHAR
);
CREATE TABLE pgc.pg_constraint (
    oid BIGINT, conname VARCHAR, connamespace BIGINT, contype VARCHAR, condeferrable BOOLEAN, condeferred
    BOOLEAN, convalidated BOOLEAN, conrelid BIGINT, contypid BIGINT, conindid BIGINT, conparentid BIGINT,
    confrelid BIGINT, confupdtype VARCHAR, confdeltype VARCHAR, confmatchtype VARCHAR, conislocal BOOLEAN,
    connoinherit BOOLEAN, conkey SMALLINT[], confkey SMALLINT[], conbin VARCHAR
);
CREATE TABLE pgc.pg_depend (
    classid BIGINT, objid BIGINT, objsubid INT, refclassid BIGINT, refobjid BIGINT, refobjsubid INT, deptype
    VARCHAR
);
CREATE TABLE pgc.pg_description (
    objoid BIGINT, classoid BIGINT, objsubid INT, description VARCHAR
);
CREATE TABLE pgc.pg_enum (
    oid BIGINT, enumtypid BIGINT, enumsortorder FLOAT, enumlabel VARCHAR
);
CREATE TABLE pgc.pg_extension (
    oid BIGINT, extname VARCHAR, extnamespace BIGINT, extversion VARCHAR
);
CREATE TABLE pgc.pg_foreign_table (
    ftrelid BIGINT, ftserver BIGINT, ftoptions VARCHAR[]
);
CREATE TABLE pgc.pg_index (
    indexrelid BIGINT, indrelid BIGINT, indnatts SMALLINT, indnkeyatts SMALLINT, indisunique BOOLEAN,
    indisprimary BOOLEAN, indisexclusion BOOLEAN, indimmediate BOOLEAN, indisclustered BOOLEAN, indisvalid
    BOOLEAN, indisready BOOLEAN, indislive BOOLEAN, indisreplident BOOLEAN, indkey SMALLINT[], indcollation
    BIGINT[], indclass BIGINT[], indoption SMALLINT[], indexprs VARCHAR, indpred VARCHAR, indnullsnotdistinct
    BOOLEAN
);
CREATE TABLE pgc.pg_inherits (
    inhrelid BIGINT, inhparent BIGINT, inhseqno INT, inhdetachpending BOOLEAN
);
CREATE TABLE pgc.pg_opclass (
    oid BIGINT, opcname VARCHAR, opcmethod BIGINT, opcdefault BOOLEAN
);
CREATE TABLE pgc.pg_partitioned_table (
    partrelid BIGINT, partstrat VARCHAR
);
CREATE TABLE pgc.pg_policy (
    oid BIGINT, polname VARCHAR, polrelid BIGINT, polcmd VARCHAR, polpermissive BOOLEAN, polroles BIGINT[],
    polqual VARCHAR, polwithcheck VARCHAR
);
CREATE TABLE pgc.pg_proc (
    oid BIGINT, proname VARCHAR, pronamespace BIGINT, prokind VARCHAR, prorettype BIGINT, proargtypes BIGINT[],
    prolang BIGINT, proargnames VARCHAR[], proargmodes VARCHAR[], proallargtypes BIGINT[], prosrc VARCHAR
);
CREATE TABLE pgc.pg_publication (
    oid BIGINT, pubname VARCHAR, puballtables BOOLEAN, pubviaroot BOOLEAN
);
CREATE TABLE pgc.pg_publication_namespace (
    pnpubid BIGINT, pnnspid BIGINT
);
CREATE TABLE pgc.pg_publication_rel (
    oid BIGINT, prpubid BIGINT, prrelid BIGINT, prattrs SMALLINT[], prqual VARCHAR
);
CREATE TABLE pgc.pg_range (
    rngtypid BIGINT, rngsubtype BIGINT
);
CREATE TABLE pgc.pg_rewrite (
    oid BIGINT, rulename VARCHAR, ev_class BIGINT, ev_type VARCHAR, ev_enabled VARCHAR
);
CREATE TABLE pgc.pg_sequence (
    seqrelid BIGINT, seqtypid BIGINT, seqstart BIGINT, seqincrement BIGINT, seqmax BIGINT, seqmin BIGINT,
    seqcache BIGINT, seqcycle BOOLEAN
);
CREATE TABLE pgc.pg_statistic_ext (
    oid BIGINT, stxrelid BIGINT, stxname VARCHAR, stxnamespace BIGINT, stxkeys SMALLINT[], stxkind VARCHAR[],
    stxstattarget INT
);
CREATE TABLE pgc.pg_tablespace (
    oid BIGINT, spcname VARCHAR
);
CREATE TABLE pgc.pg_trigger (
    oid BIGINT, tgrelid BIGINT, tgname VARCHAR, tgisinternal BOOLEAN, tgenabled VARCHAR, tgconstraint BIGINT,
    tgparentid BIGINT, tgdeferrable BOOLEAN, tginitdeferred BOOLEAN, tgfoid BIGINT, tgtype SMALLINT
);
CREATE TABLE pgc.pg_language (
    oid BIGINT, lanname VARCHAR, lanowner BIGINT, lanispl BOOLEAN, lanpltrusted BOOLEAN
);
CREATE TABLE pgc.pg_operator (
    oid BIGINT, oprname VARCHAR, oprnamespace BIGINT, oprkind VARCHAR, oprleft BIGINT, oprright BIGINT, oprresult BIGINT
);
CREATE TABLE pgc.pg_event_trigger (
    oid BIGINT, evtname VARCHAR, evtevent VARCHAR, evtowner BIGINT, evtfoid BIGINT, evtenabled VARCHAR
);
CREATE TABLE pgc.pg_locks (
    locktype VARCHAR, database BIGINT, relation BIGINT, pid INT, mode VARCHAR, granted BOOLEAN
);
CREATE TABLE pgc.pg_sequences (
    schemaname VARCHAR, sequencename VARCHAR, sequenceowner VARCHAR, data_type VARCHAR, start_value BIGINT,
    min_value BIGINT, max_value BIGINT, increment_by BIGINT, cycle BOOLEAN, cache_size BIGINT, last_value BIGINT
);
CREATE TABLE pgc.pg_stat_activity (
    datid BIGINT, datname VARCHAR, pid INT, usename VARCHAR, application_name VARCHAR, state VARCHAR, query
    VARCHAR
);
CREATE TABLE pgc.pg_stat_user_tables (
    relid BIGINT, schemaname VARCHAR, relname VARCHAR, n_live_tup BIGINT
);

CREATE MACRO pgc.version() AS 'PostgreSQL 16.0 (Millstream)';
CREATE MACRO pgc.current_database() AS 'millstream';
CREATE MACRO pgc.current_catalog() AS 'millstream';
CREATE MACRO pgc.current_schema() AS 'public';
CREATE MACRO pgc.current_user() AS 'millstream';
CREATE MACRO pgc.session_user() AS 'millstream';
CREATE MACRO pgc.current_schemas(x) AS ['pg_catalog', 'public'];
CREATE MACRO pgc.pg_get_userbyid(x) AS 'millstream';
CREATE MACRO pgc.pg_table_is_visible(x) AS true;
CREATE MACRO pgc.pg_type_is_visible(x) AS true;
CREATE MACRO pgc.pg_function_is_visible(x) AS true;
CREATE MACRO pgc.pg_collation_is_visible(x) AS true;
CREATE MACRO pgc.pg_get_expr(x, y) AS NULL::VARCHAR,
    (x, y, z) AS NULL::VARCHAR;
-- what views, indexes and their columns are, as text; constraints have theirs in conbin
CREATE TABLE pgc.texts (
    text_number BIGINT, text_place INT, text_told VARCHAR
);
CREATE VIEW pgc.constraint_texts AS SELECT oid AS constraint_number, conbin AS constraint_text FROM pgc.pg_constraint;
CREATE MACRO pgc.pg_get_constraintdef(x) AS (
    SELECT constraint_text FROM pgc.constraint_texts WHERE constraint_number = x),
    (x, y) AS (SELECT constraint_text FROM pgc.constraint_texts WHERE constraint_number = x);
CREATE MACRO pgc.pg_get_indexdef(x) AS (SELECT text_told FROM pgc.texts WHERE text_number = x AND text_place = 0),
    (x, y, z) AS (SELECT text_told FROM pgc.texts WHERE text_number = x AND text_place = y);
CREATE MACRO pgc.pg_get_viewdef(x) AS (SELECT text_told FROM pgc.texts WHERE text_number = x AND text_place = 0),
    (x, y) AS (SELECT text_told FROM pgc.texts WHERE text_number = x AND text_place = 0);
CREATE MACRO pgc.pg_get_keywords() AS TABLE
    SELECT unnest(string_split('abort,emit,explain,fold,keep,limit,query,range,slack,slide,stop,stream,view,window', ','))
        AS word, 'U' AS catcode, true AS barelabel;
CREATE MACRO pgc.pg_get_function_result(x) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_get_function_arguments(x) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_get_function_identity_arguments(x) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_get_functiondef(x) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_stat_get_numscans(x) AS 0;
CREATE MACRO pgc.pg_export_snapshot() AS '00000003-00000001-1';
CREATE MACRO infs._pg_expandarray(x) AS unnest(list_transform(x, lambda each, place: {'x': each, 'n': place}));
CREATE MACRO pgc.pg_get_partkeydef(x) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_get_serial_sequence(x, y) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_get_statisticsobjdef_columns(x) AS NULL::VARCHAR;
CREATE MACRO pgc.pg_relation_is_publishable(x) AS false;
CREATE MACRO pgc.pg_encoding_to_char(x) AS 'UTF8';
CREATE MACRO pgc.pg_backend_pid() AS 0;
CREATE MACRO pgc.pg_is_in_recovery() AS false;
CREATE MACRO pgc.pg_my_temp_schema() AS 0;
CREATE MACRO pgc.pg_is_other_temp_schema(x) AS false;
CREATE MACRO pgc.pg_tablespace_location(x) AS '';
CREATE MACRO pgc.pg_postmaster_start_time() AS now();
CREATE MACRO pgc.pg_size_pretty(x) AS x::VARCHAR;
CREATE MACRO pgc.pg_relation_size(x) AS 0,
    (x, y) AS 0;
CREATE MACRO pgc.pg_table_size(x) AS 0;
CREATE MACRO pgc.pg_total_relation_size(x) AS 0;
CREATE MACRO pgc.has_table_privilege(x, y) AS true,
    (x, y, z) AS true;
CREATE MACRO pgc.has_schema_privilege(x, y) AS true,
    (x, y, z) AS true;
CREATE MACRO pgc.has_database_privilege(x, y) AS true,
    (x, y, z) AS true;
CREATE MACRO pgc.has_column_privilege(x, y, z) AS true,
    (w, x, y, z) AS true;
CREATE MACRO pgc.obj_description(x) AS NULL::VARCHAR,
    (x, y) AS NULL::VARCHAR;
CREATE MACRO pgc.col_description(x, y) AS NULL::VARCHAR;
CREATE MACRO pgc.shobj_description(x, y) AS NULL::VARCHAR;
CREATE MACRO pgc.quote_ident(x) AS '"' || replace(x, '"', '""') || '"';
CREATE MACRO pgc.txid_current() AS 1;
CREATE MACRO pgc.inet_server_addr() AS NULL::VARCHAR;
CREATE MACRO pgc.inet_server_port() AS NULL::INT;
CREATE MACRO pgc.array_to_string(x, y) AS list_aggregate(x, 'string_agg', y);
CREATE MACRO pgc.set_config(x, y, z) AS y;
CREATE MACRO pgc.current_setting(x) AS (
    SELECT setting FROM pgc.pg_settings WHERE name = lower(x)),
    (x, y) AS (SELECT setting FROM pgc.pg_settings WHERE name = lower(x));
CREATE MACRO pgc.to_regclass(x) AS (
    SELECT oid FROM pgc.pg_class WHERE relname = replace(split_part(x, '.', -1), '"', '') LIMIT 1);
CREATE MACRO pgc.array_upper(x, y) AS nullif(len(x), 0);
CREATE MACRO pgc.array_lower(x, y) AS CASE WHEN len(x) > 0 THEN 1 END;

-- a type's name as PostgreSQL spells it; type_spelling is filled from the table of types
-- (parameters of macros are put in as text, so columns here have names that no other table has)
CREATE TABLE pgc.type_spelling (type_number BIGINT, spelling VARCHAR);
CREATE MACRO pgc.format_type(type_, modifier) AS CASE
    WHEN type_ = 1700 AND modifier >= 4
        THEN 'numeric(' || ((modifier - 4) >> 16) || ',' || ((modifier - 4) & 65535) || ')'
    ELSE coalesce((SELECT spelling FROM pgc.type_spelling WHERE type_number = type_), '???')
END;
CREATE MACRO pgc.to_regtype(x) AS (
    SELECT oid FROM pgc.pg_type WHERE typname = x OR pgc.format_type(oid, NULL) = x LIMIT 1
);

CREATE VIEW pgc.class_names AS SELECT oid AS class_number, relname AS class_name FROM pgc.pg_class;
CREATE MACRO pgc.name_of_class(x) AS (SELECT class_name FROM pgc.class_names WHERE class_number = x);
CREATE VIEW pgc.pg_user AS SELECT rolname AS usename, oid AS usesysid, rolsuper AS usesuper FROM pgc.pg_roles;
CREATE VIEW pgc.pg_tables AS SELECT n.nspname AS schemaname, c.relname AS tablename, 'millstream' AS tableowner
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r';
CREATE VIEW pgc.pg_views AS SELECT n.nspname AS schemaname, c.relname AS viewname, 'millstream' AS viewowner,
    pgc.pg_get_viewdef(c.oid) AS definition
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'v';
CREATE VIEW pgc.pg_indexes AS SELECT n.nspname AS schemaname, t.relname AS tablename, c.relname AS indexname,
    NULL::VARCHAR AS tablespace, pgc.pg_get_indexdef(c.oid) AS indexdef
    FROM pgc.pg_index i JOIN pgc.pg_class c ON c.oid = i.indexrelid JOIN pgc.pg_class t ON t.oid = i.indrelid
    JOIN pgc.pg_namespace n ON n.oid = t.relnamespace;
CREATE VIEW pgc.pg_matviews AS SELECT schemaname, viewname AS matviewname, viewowner AS matviewowner,
    NULL::VARCHAR AS tablespace, false AS hasindexes, true AS ispopulated, definition FROM pgc.pg_views WHERE false;
CREATE VIEW infs.schemata AS SELECT 'millstream' AS catalog_name, nspname AS schema_name,
        'millstream' AS schema_owner
    FROM pgc.pg_namespace;
CREATE VIEW infs.tables AS SELECT 'millstream' AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
    CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'BASE TABLE' END AS table_type,
    CASE c.relkind WHEN 'v' THEN 'NO' ELSE 'YES' END AS is_insertable_into
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind <> 'i';
CREATE VIEW infs.views AS SELECT 'millstream' AS table_catalog, schemaname AS table_schema, viewname AS table_name,
    definition AS view_definition FROM pgc.pg_views;
CREATE VIEW infs.columns AS SELECT 'millstream' AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
    a.attname AS column_name, a.attnum AS ordinal_position, NULL AS column_default,
    CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
    pgc.format_type(a.atttypid, NULL) AS data_type, t.typname AS udt_name, 'pg_catalog' AS udt_schema,
    NULL::INT AS character_maximum_length,
    CASE WHEN t.typname = 'numeric' AND a.atttypmod >= 4 THEN (a.atttypmod - 4) >> 16
        WHEN t.typname IN ('int2', 'int4', 'int8') THEN 8 * t.typlen END AS numeric_precision,
    CASE WHEN t.typname = 'numeric' AND a.atttypmod >= 4 THEN (a.atttypmod - 4) & 65535
        WHEN t.typname IN ('int2', 'int4', 'int8') THEN 0 END AS numeric_scale,
    CASE WHEN t.typcategory = 'D' AND t.typname <> 'date' THEN 6 END AS datetime_precision, 'NO' AS is_identity, 'NEVER' AS is_generated
    FROM pgc.pg_attribute a JOIN pgc.pg_class c ON c.oid = a.attrelid
    JOIN pgc.pg_namespace n ON n.oid = c.relnamespace JOIN pgc.pg_type t ON t.oid = a.atttypid WHERE c.relkind <> 'i';
CREATE VIEW infs.table_constraints AS SELECT 'millstream' AS constraint_catalog, 'public' AS constraint_schema,
    k.conname AS constraint_name, 'public' AS table_schema, c.relname AS table_name, 'PRIMARY KEY' AS constraint_type
    FROM pgc.pg_constraint k JOIN pgc.pg_class c ON c.oid = k.conrelid;
CREATE VIEW infs.key_column_usage AS SELECT 'public' AS constraint_schema, k.conname AS constraint_name,
    'public' AS table_schema, c.relname AS table_name, a.attname AS column_name, a.attnum::INT AS ordinal_position
    FROM pgc.pg_constraint k JOIN pgc.pg_class c ON c.oid = k.conrelid
    JOIN pgc.pg_attribute a ON a.attrelid = k.conindid;
CREATE TABLE infs.role_table_grants (grantor VARCHAR, grantee VARCHAR, table_catalog VARCHAR, table_schema VARCHAR,
    table_name VARCHAR, privilege_type VARCHAR, is_grantable VARCHAR);
