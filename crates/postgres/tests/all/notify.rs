//! LISTEN and NOTIFY.

use casement_postgres::testing::TestDatabase;
use casement_postgres::{NotificationEvent, Notifications};

use crate::support::TestResult;

fn said(payload: &str) -> NotificationEvent {
    NotificationEvent::Notification { channel: "casement_node_X".to_owned(), payload: payload.to_owned() }
}

async fn next(notifications: &mut Notifications) -> Result<NotificationEvent, tokio::time::error::Elapsed> {
    tokio::time::timeout(std::time::Duration::from_secs(60), notifications.next()).await
}

#[tokio::test]
async fn what_is_said_is_heard_in_order_and_a_lost_connection_says_look_again() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let mut heard = Notifications::listen(db.config(), vec!["casement_node_X".to_owned()]);
    assert_eq!(next(&mut heard).await?, NotificationEvent::Listening);
    db.execute("SELECT pg_notify('casement_node_X', 'one'); SELECT pg_notify('casement_node_X', 'two')").await?;
    assert_eq!(next(&mut heard).await?, said("one"));
    assert_eq!(next(&mut heard).await?, said("two"));

    db.cut().await?;
    assert_eq!(next(&mut heard).await?, NotificationEvent::Listening);
    db.execute("SELECT pg_notify('casement_node_X', 'three'); SELECT pg_notify('casement_node_x', 'another')").await?;
    assert_eq!(next(&mut heard).await?, said("three"));
    Ok(())
}
