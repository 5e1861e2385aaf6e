//! Dumps of the database, with the system's `pg_dump` and `pg_restore`.

use std::fs::File;

use casement_postgres::testing::TestDatabase;
use casement_postgres::{DumpError, DumpPrograms, Snapshot, database_is_empty, knows_schema, migrate};
use tokio::io::AsyncWriteExt as _;

use crate::support::TestResult;

/// Dumps the snapshot to a new file.
async fn dumped(db: &TestDatabase, snapshot: &Snapshot) -> Result<tempfile::NamedTempFile, DumpError> {
    let dump = tempfile::NamedTempFile::new().expect("a file");
    let mut output = tokio::fs::File::from_std(dump.reopen().expect("the file"));
    DumpPrograms::newest()?.dump(db.config(), snapshot, &mut output).await?;
    output.flush().await.expect("written");
    Ok(dump)
}

#[tokio::test]
async fn a_dump_has_the_rows_of_its_snapshot_and_is_restored_into_an_empty_database() -> TestResult {
    let (db, copy) = (TestDatabase::fresh().await?, TestDatabase::empty().await?);
    db.execute("CREATE TABLE marks (name text); INSERT INTO marks VALUES ('before')").await?;
    let snapshot = Snapshot::take(db.config()).await?;
    db.execute("INSERT INTO marks VALUES ('after')").await?;
    assert!(knows_schema(&snapshot.schema().await?));
    assert!(snapshot.blobs().await?.is_empty());
    let dump = dumped(&db, &snapshot).await?;

    assert!(database_is_empty(copy.config()).await?);
    let programs = DumpPrograms::newest()?;
    programs.restore(copy.config(), File::open(dump.path())?).await?;

    assert_eq!(copy.rows("SELECT name FROM marks").await?, [["before"]]);
    assert!(migrate(copy.config()).await?.is_empty(), "the schema is complete");
    assert!(!database_is_empty(copy.config()).await?);
    let again = programs.restore(copy.config(), File::open(dump.path())?).await;
    assert!(matches!(again, Err(DumpError::Failed { program: "pg_restore", .. })), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn a_damaged_dump_leaves_an_empty_database() -> TestResult {
    let (db, copy) = (TestDatabase::fresh().await?, TestDatabase::empty().await?);
    let dump = dumped(&db, &Snapshot::take(db.config()).await?).await?;
    let length = dump.as_file().metadata()?.len();
    dump.as_file().set_len(length - 1000)?;

    let restored = DumpPrograms::newest()?.restore(copy.config(), File::open(dump.path())?).await;

    assert!(matches!(restored, Err(DumpError::Failed { .. })), "{restored:?}");
    assert!(database_is_empty(copy.config()).await?);
    Ok(())
}

#[tokio::test]
async fn a_database_without_a_schema_is_no_installation() -> TestResult {
    let db = TestDatabase::empty().await?;
    let schema = Snapshot::take(db.config()).await?.schema().await;
    assert!(matches!(schema, Err(DumpError::NoSchema)), "{schema:?}");
    Ok(())
}
