//! The migrations, up and down, and rules for the whole schema.

use casement_postgres::testing::TestDatabase;
use casement_postgres::{migrate, revert_all};
use pretty_assertions::assert_eq;

use crate::support::TestResult;

/// Everything that the migrations create, from PostgreSQL's catalogs.
const SNAPSHOT: &str = "
    SELECT 'column', table_name || '.' || column_name, data_type, is_nullable, coalesce(column_default, ''), coalesce(collation_name, '')
        FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT 'index', indexname, indexdef, '', '', '' FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid), '', '', '' FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'collation', collname, coalesce(colliculocale, ''), '', '', '' FROM pg_collation WHERE collnamespace = 'public'::regnamespace
    UNION ALL SELECT 'function', proname, prosrc, '', '', '' FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'sequence', sequencename, '', '', '', '' FROM pg_sequences WHERE schemaname = 'public'
    UNION ALL SELECT 'type', typname, '', '', '', '' FROM pg_type WHERE typnamespace = 'public'::regnamespace
    ORDER BY 1, 2, 3";

#[tokio::test]
async fn every_migration_is_undone_by_its_down_and_made_again_by_its_up() -> TestResult {
    let db = TestDatabase::empty().await?;
    let applied = migrate(db.config()).await?;
    assert!(!applied.is_empty());
    let once = db.rows(SNAPSHOT).await?;

    assert_eq!(revert_all(db.config()).await?.len(), applied.len());
    let rest: Vec<_> =
        db.rows(SNAPSHOT).await?.into_iter().filter(|row| !row.iter().any(|c| c.contains("diesel"))).collect();
    assert_eq!(rest, Vec::<Vec<String>>::new(), "nothing is left after all downs");

    assert_eq!(migrate(db.config()).await?, applied);
    assert_eq!(db.rows(SNAPSHOT).await?, once);
    Ok(())
}

#[tokio::test]
async fn a_schema_of_a_later_version_is_refused_and_left_alone() -> TestResult {
    let db = TestDatabase::fresh().await?;
    db.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('99991231235959')").await?;
    let before = db.rows(SNAPSHOT).await?;

    let refused = migrate(db.config()).await.err().ok_or("it went on")?;

    let reported = "a later casement has used the database (migration 99991231235959): start that one";
    assert_eq!(refused.to_string(), reported);
    assert_eq!(db.rows(SNAPSHOT).await?, before);
    Ok(())
}

#[tokio::test]
async fn two_nodes_that_start_at_once_migrate_once() -> TestResult {
    let db = TestDatabase::empty().await?;
    let (one, other) = tokio::join!(migrate(db.config()), migrate(db.config()));
    let (one, other) = (one?, other?);
    assert!(one.is_empty() != other.is_empty(), "{one:?} {other:?}");
    Ok(())
}

#[tokio::test]
async fn every_project_id_has_a_foreign_key() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let without = "
        SELECT c.table_name, c.column_name FROM information_schema.columns c
        WHERE c.table_schema = 'public' AND c.column_name IN ('project_id', 'organization_id', 'pool_id', 'node_id')
          -- Records of calls outlive nothing: what they name is never removed, and looking after it would cost each of
          -- them.
          AND c.table_name NOT LIKE 'audit_records%'
          AND NOT EXISTS (
            SELECT 1 FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
            WHERE k.contype = 'f' AND k.conrelid = ('public.' || c.table_name)::regclass AND a.attname = c.column_name)";
    assert_eq!(db.rows(without).await?, Vec::<Vec<String>>::new());
    Ok(())
}

#[tokio::test]
async fn every_foreign_key_has_an_index() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let without = "
        SELECT conrelid::regclass::text, conname FROM pg_constraint k
        WHERE contype = 'f' AND connamespace = 'public'::regnamespace AND NOT EXISTS (
            SELECT 1 FROM pg_index i WHERE i.indrelid = k.conrelid AND i.indkey[0] = k.conkey[1])";
    assert_eq!(db.rows(without).await?, Vec::<Vec<String>>::new());
    Ok(())
}

#[tokio::test]
async fn every_time_bears_its_zone() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let without = "
        SELECT table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_diesel%'
          AND (data_type LIKE 'timestamp without%' OR data_type LIKE 'time %' OR data_type = 'date'
               OR (column_name LIKE '%\\_at' AND data_type <> 'timestamp with time zone'))";
    assert_eq!(db.rows(without).await?, Vec::<Vec<String>>::new());
    Ok(())
}

/// Columns of the database that only the version before reads, until a migration of the next release drops them.
const UNREAD: [(&str, &[&str]); 3] =
    [("browser_pools", SHAPE_COLUMNS), ("browsers", SHAPE_COLUMNS), ("sessions", SHAPE_COLUMNS)];
const SHAPE_COLUMNS: &[&str] = &[
    "engine",
    "headless",
    "kiosk_mode",
    "locale",
    "memory_mib",
    "stealth",
    "time_zone",
    "viewport_height",
    "viewport_refresh_rate",
    "viewport_width",
];

/// The tables of `schema.rs` must match those of the migrations, column by column.
#[tokio::test]
async fn the_schema_in_rust_is_the_schema_in_the_database() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let columns = "
        SELECT table_name, column_name, udt_name, is_nullable FROM information_schema.columns
        WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_diesel%'
          AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = ('public.' || table_name)::regclass)
        ORDER BY table_name, ordinal_position";
    let mut made: Vec<(String, String, String)> = Vec::new();
    for row in db.rows(columns).await? {
        let [table, column, kind, nullable] = &row[..] else { return Err("four columns were asked for".into()) };
        let kind = match kind.as_str() {
            "uuid" => "Uuid",
            "_uuid" => "Array<Uuid>",
            "text" => "Text",
            "_text" => "Array<Text>",
            "int4" => "Int4",
            "int8" => "Int8",
            "bool" => "Bool",
            "bytea" => "Bytea",
            "json" => "Json",
            "jsonb" => "Jsonb",
            "timestamptz" => "Timestamptz",
            other => return Err(format!("{table}.{column}: no type in Rust for {other}").into()),
        };
        let kind = if nullable == "YES" { format!("Nullable<{kind}>") } else { kind.to_owned() };
        made.push((table.clone(), column.clone(), kind));
    }
    let mut given = given(include_str!("../../src/schema.rs"));
    given.sort_by(|one, other| one.0.cmp(&other.0));
    let is_unread = |(table, column, _): &(String, String, String)| {
        UNREAD.iter().any(|(unread, columns)| table == unread && columns.contains(&column.as_str()))
    };
    let (unread, made): (Vec<_>, Vec<_>) = made.into_iter().partition(is_unread);
    assert_eq!(
        unread.len(),
        UNREAD.iter().map(|(_, columns)| columns.len()).sum::<usize>(),
        "each unread column exists"
    );
    assert_eq!(given, made);
    Ok(())
}

/// The columns of every `table!` in the text, as table, column and type.
fn given(text: &str) -> Vec<(String, String, String)> {
    let mut table = String::new();
    let mut columns = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((name, _key)) = line.strip_suffix(") {").and_then(|line| line.split_once(" (")) {
            name.clone_into(&mut table);
        } else if let Some((column, kind)) =
            line.trim_end_matches(',').split_once(" -> ").filter(|_| line.ends_with(','))
        {
            // A name that is a Rust keyword has an underscore at its end.
            columns.push((table.clone(), column.trim_end_matches('_').to_owned(), kind.to_owned()));
        }
    }
    columns
}
