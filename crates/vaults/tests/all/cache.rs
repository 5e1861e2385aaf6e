//! Tests of the cache of items and failures.

use std::time::Duration;

use casement_domain::credential_provider::{CredentialStore as _, ProviderFault};
use serde_json::json;

use super::support::{Behaviour, Server, login, open, provider_id, stores};

fn server() -> std::sync::Arc<Server> {
    Server::new("https://connect.test", vec![login(1, "Shop", "https://shop.example", json!({}))])
}

/// Advances the paused clock.
async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_is_cached_for_as_long_as_the_provider_says() {
    let server = server();
    let (provider, stores) = (open(1, &server, 300), stores(&[&server]));
    stores.items(&provider).await.unwrap();
    assert_eq!(server.requests().len(), 2);
    pass(299).await;
    stores.items(&provider).await.unwrap();
    assert_eq!(server.requests().len(), 0);
    pass(2).await;
    stores.items(&provider).await.unwrap();
    assert_eq!(server.requests().len(), 2);

    let mut changed = provider.clone();
    changed.version += time::Duration::SECOND;
    stores.items(&changed).await.unwrap();
    assert_eq!(server.requests().len(), 2, "a provider that was changed is another");
    stores.forget(provider_id(1));
    stores.items(&changed).await.unwrap();
    assert_eq!(server.requests().len(), 2);

    let never = open(2, &server, 0);
    for _ in 0..2 {
        stores.items(&never).await.unwrap();
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn concurrent_callers_share_one_read_of_a_list() {
    let server = server();
    let (provider, stores) = (open(1, &server, 300), stores(&[&server]));
    let asking = (0..50).map(|_| {
        let (provider, stores) = (provider.clone(), stores.clone());
        tokio::spawn(async move { stores.items(&provider).await.unwrap().len() })
    });
    let asking: Vec<_> = asking.collect();
    for one in asking {
        assert_eq!(one.await.unwrap(), 1);
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_backoff_of_a_failing_store_doubles() {
    let server = server();
    let (provider, stores) = (open(1, &server, 300), stores(&[&server]));
    server.set_behaviour(Behaviour::Answers(503, Vec::new()));
    let last = ProviderFault::BadAnswer("status 503".to_owned());
    for rest in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(stores.items(&provider).await.unwrap_err(), last);
        assert_eq!(server.requests().len(), 1);
        pass(rest - 1).await;
        let resting = stores.items(&provider).await.unwrap_err();
        assert!(matches!(&resting, ProviderFault::BackingOff { last: fault, .. } if **fault == last), "{resting}");
        assert_eq!(server.requests().len(), 0, "after {rest} s");
        pass(1).await;
    }
    assert_eq!(stores.items(&provider).await.unwrap_err(), last);
    server.requests();
    server.set_behaviour(Behaviour::Well);
    stores.vaults(&provider).await.unwrap();
    assert_eq!(server.requests().len(), 1, "a test asks at once");
    stores.items(&provider).await.unwrap();
    server.set_behaviour(Behaviour::Answers(503, Vec::new()));
    let fresh = open(1, &server, 0);
    pass(300).await;
    assert_eq!(stores.items(&fresh).await.unwrap_err(), last);
    pass(1).await;
    assert_eq!(stores.items(&fresh).await.unwrap_err(), last, "what was well once begins anew");
}
