//! Databases that fail over, speak other languages, have settings of their own or are of no use.

use casement_domain::testing::NOON;
use casement_domain::{BlobStoreId, DatabaseId, StoreError};
use casement_postgres::testing::TestDatabase;
use casement_postgres::{
    Database, DatabaseConfig, PgBlobStore, Snapshot, UnsuitableDatabase, ensure_suitable, migrate,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use ulid::Ulid;

use crate::support::{TestResult, until};
use crate::world::Fault;

/// Lets new connections to the database only read, or write again. Open ones stay as they are.
async fn set_read_only(db: &TestDatabase, only_reads: bool) -> TestResult {
    let value =
        if only_reads { "SET default_transaction_read_only = on" } else { "RESET default_transaction_read_only" };
    Ok(db.execute(&format!("SET TRANSACTION READ WRITE; {}", altered(value))).await?)
}

/// The statement that alters the current database.
fn altered(what: &str) -> String {
    format!("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {what}', current_database()); END $$")
}

fn rows(db: &TestDatabase, parameters: &str) -> Result<PgBlobStore, Fault> {
    Ok(PgBlobStore::new(Database::new(&DatabaseConfig::parse(&format!("{}{parameters}", db.url()))?)))
}

/// A statement that changes something.
async fn write(rows: &PgBlobStore) -> Result<(), StoreError> {
    rows.record_first(BlobStoreId::from_ulid(Ulid::from_parts(20, 1)), "a place").await.map(drop)
}

async fn prepared() -> Result<TestDatabase, Fault> {
    let db = TestDatabase::fresh().await?;
    PgBlobStore::new(db.database().clone()).read(DatabaseId::from_ulid(Ulid::from_parts(21, 1))).await?;
    Ok(db)
}

#[tokio::test]
async fn connections_that_could_only_read_when_they_were_opened_are_closed() -> TestResult {
    let db = prepared().await?;
    for parameters in ["", "&target_session_attrs=any"] {
        set_read_only(&db, true).await?;
        let rows = rows(&db, parameters)?;
        for _ in 0..4 {
            let refused = write(&rows).await.err().ok_or("it wrote")?;
            assert!(matches!(refused, StoreError::Unavailable { .. }), "{parameters}: {refused:?}");
        }
        set_read_only(&db, false).await?;
        until("the database can be written to", async || write(&rows).await.is_ok()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_database_that_can_only_be_read_is_unavailable_unless_any_is_accepted() -> TestResult {
    let db = prepared().await?;
    set_read_only(&db, true).await?;
    let refused = Database::new(&DatabaseConfig::parse(&db.url())?).ping().await.err().ok_or("it answered")?;
    assert!(format!("{refused:?}").contains("can only be read"), "{refused:?}");
    let any = DatabaseConfig::parse(&format!("{}&target_session_attrs=any", db.url()))?;
    let readable = Database::new(&any);
    readable.ping().await?;
    let refused = readable.check_writable().await.err().ok_or("it accepts changes")?;
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    Ok(())
}

/// A translated message has none of the words that an English one has.
#[tokio::test]
async fn the_meaning_of_a_refusal_is_its_code_and_not_its_message() -> TestResult {
    let db = prepared().await?;
    let rows = PgBlobStore::new(db.database().clone());
    for (code, message, is_passing) in [
        ("57014", "storniere Anfrage wegen Zeitüberschreitung", true),
        ("53300", "tut mir leid, schon zu viele Verbindungen", true),
        ("40P01", "Verklemmung (Deadlock) entdeckt", true),
        ("42P01", "canceling statement: deadlock detected", false),
    ] {
        db.execute(&format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = '{code}'; END $$; \
             CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON blob_stores EXECUTE FUNCTION refuse()"
        ))
        .await?;
        let refused = write(&rows).await.err().ok_or("it wrote")?;
        assert_eq!(matches!(refused, StoreError::Unavailable { .. }), is_passing, "{code}: {refused:?}");
        assert!(format!("{refused:?}").contains(message), "{refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn options_of_the_url_hold_for_migrations_calls_and_dumps() -> TestResult {
    let db = TestDatabase::empty().await?;
    db.execute("CREATE SCHEMA own").await?;
    let config = DatabaseConfig::parse(&format!("{}&options=-c%20search_path%3Down", db.url()))?;
    assert!(!migrate(&config).await?.is_empty());
    let placed = "SELECT count(*) FILTER (WHERE schemaname = 'own') > 0, count(*) FILTER (WHERE schemaname = 'public') \
                  FROM pg_tables";
    assert_eq!(db.rows(placed).await?, [["t", "0"]]);
    let rows = PgBlobStore::new(Database::new(&config));
    rows.read(DatabaseId::from_ulid(Ulid::from_parts(21, 1))).await?;
    let snapshot = Snapshot::take(&config).await?;
    snapshot.schema().await?;
    assert!(snapshot.blobs().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_database_is_looked_at_before_it_is_used() -> TestResult {
    let db = TestDatabase::empty().await?;
    ensure_suitable(db.config(), NOON).await?;

    // Its own isolation and time zone do not matter.
    db.execute(&altered("SET default_transaction_isolation = ''serializable''")).await?;
    ensure_suitable(db.config(), NOON).await?;

    let name = db.rows("SELECT current_database()").await?.concat().concat();
    db.execute(&format!("CREATE DATABASE {name}_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")).await?;
    let latin = DatabaseConfig::parse(&db.url().replace(&format!("/{name}?"), &format!("/{name}_latin?")))?;
    let refused = ensure_suitable(&latin, NOON).await.err().ok_or("it was accepted")?;
    assert!(matches!(&refused, UnsuitableDatabase::Encoding(found) if found == "LATIN1"), "{refused}");
    Ok(())
}

/// A server that gives every client the same process, as a pooler in transaction mode does.
#[tokio::test]
async fn connections_that_share_a_process_are_refused_with_the_pooler_as_reason() -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = DatabaseConfig::parse(&format!("postgresql://x@{}/x?sslmode=disable", listener.local_addr()?))?;
    let serving = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pooled(client));
        }
    });
    let refused = ensure_suitable(&config, NOON).await.err().ok_or("it was accepted")?;
    serving.abort();
    assert!(matches!(refused, UnsuitableDatabase::Pooled), "{refused}");
    assert!(refused.to_string().contains("PgBouncer"), "{refused}");
    Ok(())
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or_default();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// Answers every statement with a row of one column: `off`, or the number of the process.
async fn pooled(mut client: TcpStream) -> std::io::Result<()> {
    let start = client.read_u32().await?;
    client.read_exact(&mut vec![0; start as usize - 4]).await?;
    let ready = message(b'Z', b"I");
    client.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat()).await?;
    loop {
        let kind = client.read_u8().await?;
        let mut body = vec![0; client.read_u32().await? as usize - 4];
        client.read_exact(&mut body).await?;
        if kind != b'Q' {
            return Ok(());
        }
        let value: &[u8] = if body.starts_with(b"SHOW") { b"off" } else { b"4711" };
        let column = [&[0, 1][..], b"value\0", &[0; 6], &25_u32.to_be_bytes(), &[255; 6], &[0; 2]].concat();
        let length = u32::try_from(value.len()).unwrap_or_default();
        let row = [&[0, 1][..], &length.to_be_bytes(), value].concat();
        let answer = [message(b'T', &column), message(b'D', &row), message(b'C', b"SELECT 1\0"), ready.clone()];
        client.write_all(&answer.concat()).await?;
    }
}
