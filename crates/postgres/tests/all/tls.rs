//! TLS of the connections, against a PostgreSQL with `ssl = on`.

use std::error::Error;
use std::fs::File;

use casement_domain::project::ProjectRepository as _;
use casement_domain::testing;
use casement_postgres::{
    Database, DatabaseConfig, DumpPrograms, NotificationEvent, Notifications, PgProjects, Snapshot, database_is_empty,
    migrate,
};

use crate::support::{TestResult, until};
use crate::tls_server::{Authority, CERTIFIED, PLAIN, TlsServer, self_signed, shows_the_password};
use crate::world::Fault;

/// The text of an error with its causes.
fn text(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    assert!(!shows_the_password(&text), "{text}");
    text
}

/// Connects once. Returns the text of the error.
async fn connect(url: &str) -> Result<Database, String> {
    let database = Database::new(&DatabaseConfig::parse(url).map_err(|error| text(&error))?);
    database.ping().await.map_err(|error| text(&error))?;
    Ok(database)
}

/// The reason why no connection is possible.
async fn refusal(url: &str) -> Result<String, Fault> {
    connect(url).await.err().ok_or_else(|| format!("it is possible: {url}").into())
}

/// Connects, and returns how many connections are encrypted and how many are not.
async fn connected(server: &TlsServer, url: &str) -> Result<String, Fault> {
    let database = connect(url).await?;
    let counted = server.encrypted().await?;
    database.close();
    drop(database);
    until("the connection is closed", async || server.encrypted().await.is_ok_and(|n| n == "0 and 0")).await?;
    Ok(counted)
}

#[tokio::test]
async fn each_sslmode_checks_what_it_says_of_the_certificate() -> TestResult {
    let server = TlsServer::start().await?;
    let root = server.root_file()?;
    let foreign = server.file("foreign.crt", &Authority::new("Another authority")?.pem())?;

    for accepted in [
        "sslmode=prefer".to_owned(),
        "sslmode=require".to_owned(),
        "sslmode=require&channel_binding=require".to_owned(),
        format!("sslmode=verify-ca&sslrootcert={root}"),
        format!("sslmode=verify-full&sslrootcert={root}"),
        format!("sslmode=verify-full&sslrootcert={root}&channel_binding=require"),
    ] {
        assert_eq!(connected(&server, &server.url(&accepted)).await?, "1 and 0", "{accepted}");
    }
    let other_name = server.url_of("other.test", &format!("sslmode=verify-ca&sslrootcert={root}"));
    assert_eq!(connected(&server, &other_name).await?, "1 and 0");
    // A host of this machine, and no parameters: as before.
    assert_eq!(connected(&server, &server.url("")).await?, "0 and 1");

    for mode in ["require", "verify-ca", "verify-full"] {
        let reason = refusal(&server.url(&format!("sslmode={mode}&sslrootcert={foreign}"))).await?;
        let named = format!("the certificate of db.test is not signed by an authority in sslrootcert ({foreign})");
        assert!(reason.contains(&named), "{reason}");
    }
    let reason = refusal(&server.url("sslmode=verify-full")).await?;
    assert!(reason.contains("(sslrootcert=system); give the file of its authority as sslrootcert"), "{reason}");
    let reason = refusal(&server.url_of("other.test", &format!("sslmode=verify-full&sslrootcert={root}"))).await?;
    assert!(reason.contains("the certificate of other.test is for db.test;"), "{reason}");
    Ok(())
}

#[tokio::test]
async fn an_expired_certificate_is_refused_and_a_renewed_or_self_signed_one_used() -> TestResult {
    let server = TlsServer::start().await?;
    let verified = format!("sslmode=verify-full&sslrootcert={}", server.root_file()?);
    let expired = server.authority.issue("db.test", 2020)?;
    server.use_certificate(&expired).await?;
    let itself = format!("sslmode=verify-full&sslrootcert={}", server.file("itself.crt", &expired.certificate)?);
    for parameters in [&verified, &itself] {
        let reason = refusal(&server.url(parameters)).await?;
        assert!(reason.contains("the certificate of db.test is not valid today"), "{reason}");
    }
    server.use_certificate(&server.authority.issue("db.test", 2300)?).await?;
    assert_eq!(connected(&server, &server.url(&verified)).await?, "1 and 0");

    let self_signed = self_signed("db.test")?;
    server.use_certificate(&self_signed).await?;
    server.file("itself.crt", &self_signed.certificate)?;
    assert_eq!(connected(&server, &server.url(&itself)).await?, "1 and 0");
    Ok(())
}

#[tokio::test]
async fn a_connection_without_tls_is_refused_by_require_and_accepted_by_prefer() -> TestResult {
    let server = TlsServer::start().await?;
    let reason = refusal(&server.url_of_role(PLAIN, "sslmode=require")).await?;
    assert!(reason.contains("pg_hba.conf rejects connection"), "{reason}");
    assert_eq!(connected(&server, &server.url_of_role(PLAIN, "sslmode=prefer")).await?, "0 and 1");

    server.turn_tls_off().await?;
    let verified = format!("sslmode=verify-full&sslrootcert={}", server.root_file()?);
    for parameters in ["sslmode=require", &verified] {
        let reason = refusal(&server.url(parameters)).await?;
        assert!(reason.contains("the database speaks no TLS, which sslmode of the database URL demands"), "{reason}");
    }
    assert_eq!(connected(&server, &server.url("sslmode=prefer")).await?, "0 and 1");
    Ok(())
}

/// In a single-threaded runtime, as in a web worker, short reads share a connection of their own.
#[tokio::test]
async fn pooled_and_shared_connections_and_notifications_are_encrypted() -> TestResult {
    let server = TlsServer::start().await?;
    let config = server.config(&format!("sslmode=verify-full&sslrootcert={}", server.root_file()?))?;
    migrate(&config).await?;
    let mut notifications = Notifications::listen(&config, vec!["changes".to_owned()]);
    assert_eq!(notifications.next().await, NotificationEvent::Listening);
    let database = Database::new(&config);
    let projects = PgProjects::new(database.clone());
    for _ in 0..20 {
        futures_util::future::try_join_all((0..4).map(|_| database.ping())).await?;
        let found = projects.find(testing::organization_id(), testing::project_id()).await?;
        assert!(found.is_none());
    }
    // The one of the migrations closes meanwhile.
    until("six connections", async || server.encrypted().await.is_ok_and(|counted| counted == "6 and 0")).await?;
    let large = "x".repeat(7000);
    server.ask(&format!("SELECT pg_notify('changes', '{large}')")).await?;
    let notified = notifications.next().await;
    assert_eq!(notified, NotificationEvent::Notification { channel: "changes".to_owned(), payload: large });
    Ok(())
}

#[tokio::test]
async fn dumps_are_made_and_restored_with_the_same_checks() -> TestResult {
    let server = TlsServer::start().await?;
    let verified = format!("sslmode=verify-full&sslrootcert={}&channel_binding=require", server.root_file()?);
    let config = server.config(&verified)?;
    migrate(&config).await?;
    let programs = DumpPrograms::newest()?;
    let dump = tempfile::NamedTempFile::new()?;
    let mut output = tokio::fs::File::from_std(dump.reopen()?);
    programs.dump(&config, &Snapshot::take(&config).await?, &mut output).await?;
    tokio::io::AsyncWriteExt::flush(&mut output).await?;

    server.ask("CREATE DATABASE copy").await?;
    let copy = DatabaseConfig::parse(&server.url(&verified).replace("/casement?", "/copy?"))?;
    programs.restore(&copy, File::open(dump.path())?).await?;
    assert!(!database_is_empty(&copy).await?);

    let foreign = server.file("foreign.crt", &Authority::new("Another authority")?.pem())?;
    let unchecked = server.config(&format!("sslmode=verify-full&sslrootcert={foreign}"))?;
    let refused = programs.restore(&unchecked, File::open(dump.path())?).await;
    let reason = refused.err().ok_or("it was restored")?.to_string();
    assert!(reason.contains("certificate verify failed") && !shows_the_password(&reason), "{reason}");
    Ok(())
}

#[tokio::test]
async fn a_role_proves_itself_by_a_certificate_which_may_be_renewed_meanwhile() -> TestResult {
    let server = TlsServer::start().await?;
    let reason = refusal(&server.url_of_role(CERTIFIED, "sslmode=require")).await?;
    assert!(reason.contains("connection requires a valid client certificate"), "{reason}");

    let other = server.authority.issue("casement", 2300)?;
    let (certificate, key) = (server.file("c.crt", &other.certificate)?, server.file("c.key", &other.key)?);
    let url = server.url_of_role(CERTIFIED, &format!("sslmode=require&sslcert={certificate}&sslkey={key}"));
    let database = Database::new(&DatabaseConfig::parse(&url)?);
    assert!(database.ping().await.is_err(), "a certificate of another role");
    let issued = server.authority.issue(CERTIFIED, 2300)?;
    server.file("c.crt", &issued.certificate)?;
    let reason = refusal(&url).await?;
    assert!(reason.contains("sslcert and sslkey of the database URL cannot be used together"), "{reason}");
    server.file("c.key", &issued.key)?;
    database.ping().await?;
    assert_eq!(server.encrypted().await?, "1 and 0");
    Ok(())
}
