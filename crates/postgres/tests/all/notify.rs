//! LISTEN and NOTIFY.

use casement_postgres::testing::TestDatabase;
use casement_postgres::{NotificationEvent, Notifications};

use crate::support::TestResult;

fn given(payload: &str) -> NotificationEvent {
    NotificationEvent::Notification { channel: "casement_node_X".to_owned(), payload: payload.to_owned() }
}

async fn next(notifications: &mut Notifications) -> Result<NotificationEvent, tokio::time::error::Elapsed> {
    tokio::time::timeout(std::time::Duration::from_secs(60), notifications.next()).await
}

#[tokio::test]
async fn what_is_stated_is_received_in_order_and_a_lost_connection_says_look_again() -> TestResult {
    let db = TestDatabase::fresh().await?;
    let mut received = Notifications::listen(db.config(), vec!["casement_node_X".to_owned()]);
    assert_eq!(next(&mut received).await?, NotificationEvent::Listening);
    db.execute("SELECT pg_notify('casement_node_X', 'one'); SELECT pg_notify('casement_node_X', 'two')").await?;
    assert_eq!(next(&mut received).await?, given("one"));
    assert_eq!(next(&mut received).await?, given("two"));

    db.cut().await?;
    assert_eq!(next(&mut received).await?, NotificationEvent::Listening);
    db.execute("SELECT pg_notify('casement_node_X', 'three'); SELECT pg_notify('casement_node_x', 'another')").await?;
    assert_eq!(next(&mut received).await?, given("three"));
    Ok(())
}
