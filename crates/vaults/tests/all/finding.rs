//! The search for the login of a site in all providers.

use std::sync::Arc;

use casement_domain::auth_connection::ProviderScope;
use casement_domain::credential_provider::{CredentialProvider, CredentialProviders, FindError, Lookup, ProviderFault};
use casement_domain::testing::organization_id;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::support::{Behaviour, Server, login, long_id, provider_id, stored_provider, stores, use_cases};

/// Returns the scope of all providers of the organization.
fn all() -> ProviderScope {
    ProviderScope { organization: organization_id(), project: None }
}

struct World {
    first: Arc<Server>,
    second: Arc<Server>,
    providers: CredentialProviders,
}

/// Returns two providers that share one site and have another each.
fn world() -> World {
    let first = Server::new(
        "https://one.test",
        vec![
            login(1, "Shop", "https://shop.example/login", json!({})),
            login(2, "A", "https://a.example", json!({})),
            login(3, "Twin", "https://t.example", json!({})),
            login(4, "Twin", "https://u.example", json!({})),
        ],
    );
    let second = Server::new(
        "https://two.test",
        vec![login(5, "Shop", "https://shop.example/login", json!({})), login(6, "B", "https://b.example", json!({}))],
    );
    let off = CredentialProvider { enabled: false, ..stored_provider(3, &second) };
    let providers = vec![stored_provider(1, &first), stored_provider(2, &second), off];
    let providers = use_cases(providers, stores(&[&first, &second]));
    World { first, second, providers }
}

impl World {
    async fn find(&self, provider: Option<&str>, what: Lookup<'_>) -> Result<Option<String>, FindError> {
        let found = self.providers.find(all(), provider, what).await?;
        Ok(found.map(|login| login.secrets.password.unwrap().expose_secret().to_owned()))
    }
}

#[tokio::test]
async fn providers_are_searched_for_a_site_in_their_order() {
    let world = world();
    let is = |password: &str| Some(password.to_owned());
    assert_eq!(world.find(None, Lookup::Domain("shop.example")).await.unwrap(), is("s3cr3t-1"));
    assert_eq!(world.find(None, Lookup::Domain("b.example")).await.unwrap(), is("s3cr3t-6"));
    assert_eq!(world.find(None, Lookup::Domain("nowhere.example")).await.unwrap(), None);
    assert_eq!(world.find(Some("provider 2"), Lookup::Domain("shop.example")).await.unwrap(), is("s3cr3t-5"));
    let id = provider_id(2).to_string();
    assert_eq!(world.find(Some(&id), Lookup::Domain("shop.example")).await.unwrap(), is("s3cr3t-5"));
    assert_eq!(world.find(Some("provider 1"), Lookup::Domain("b.example")).await.unwrap(), None);

    assert_eq!(world.find(None, Lookup::Path("Team/B")).await.unwrap(), is("s3cr3t-6"));
    let by_ids = format!("{}/{}", long_id('v', 1), long_id('i', 4));
    assert_eq!(world.find(Some("provider 1"), Lookup::Path(&by_ids)).await.unwrap(), is("s3cr3t-4"));
    let twin = world.find(Some("provider 1"), Lookup::Path("Team/Twin")).await.unwrap_err();
    assert!(matches!(twin, FindError::Ambiguous { items: 2, .. }), "{twin}");

    world.first.requests();
    let found = world.providers.find(all(), None, Lookup::Domain("a.example")).await.unwrap().unwrap();
    assert_eq!((found.provider, found.item.path().as_str()), (provider_id(1), "Team/A"));
    assert_eq!(world.first.requests().len(), 1, "only the secrets are read anew");
}

#[tokio::test]
async fn an_unknown_or_disabled_provider_is_an_error() {
    let world = world();
    let unknown = world.find(Some("nobody"), Lookup::Domain("a.example")).await.unwrap_err();
    assert!(matches!(&unknown, FindError::NoProvider(name) if name == "nobody"), "{unknown}");
    let off = world.find(Some("provider 3"), Lookup::Domain("b.example")).await.unwrap_err();
    assert!(matches!(&off, FindError::Disabled(name) if name == "provider 3"), "{off}");
}

#[tokio::test]
async fn a_failing_provider_does_not_stop_the_search() {
    let fails = world();
    fails.first.set_behaviour(Behaviour::Unreachable);
    assert_eq!(fails.find(None, Lookup::Domain("shop.example")).await.unwrap().unwrap(), "s3cr3t-5");
    // A provider that fails after its list was cached does not stop the search either.
    let world = world();
    assert_ne!(world.find(None, Lookup::Domain("shop.example")).await.unwrap().unwrap(), "s3cr3t-5");
    world.first.set_behaviour(Behaviour::Unreachable);
    assert_eq!(world.find(None, Lookup::Domain("shop.example")).await.unwrap().unwrap(), "s3cr3t-5");
    let lost = world.find(None, Lookup::Domain("a.example")).await.unwrap_err();
    assert!(
        matches!(&lost, FindError::Fault { provider, .. } if provider == "provider 1"),
        "what is found nowhere may be where nobody could look: {lost}"
    );
    world.second.set_behaviour(Behaviour::Answers(401, Vec::new()));
    let refused = world.find(Some("provider 2"), Lookup::Path("Team/B")).await.unwrap_err();
    assert!(matches!(&refused, FindError::Fault { fault: ProviderFault::Refused, .. }), "{refused}");
}

#[tokio::test]
async fn a_flow_gets_the_secrets_of_an_item_under_its_own_names() {
    use casement_domain::auth_connection::{ExternalCredentials as _, ExternalWanted};

    let world = world();
    let codes = |address: &str| {
        json!([{ "id": "u", "type": "STRING", "purpose": "USERNAME", "value": "me" },
               { "id": "o", "type": "OTP", "value": address }, { "id": "p", "type": "CONCEALED", "label": "PIN", "value": "12" }])
    };
    let secret = "GEZDGNBVGY3TQOJQ";
    for (n, address) in [(7, secret.to_owned()), (8, format!("otpauth://totp/x?secret={secret}&digits=8"))] {
        let item = login(n, &format!("Codes {n}"), "https://c.example", json!({ "fields": codes(&address) }));
        world.second.vaults.lock()[0].2.push(item);
    }
    let fetch = |wanted| world.providers.fetch(all(), Some("provider 2"), wanted);
    let found = fetch(ExternalWanted::Path("Team/Codes 7")).await.unwrap().unwrap();
    assert_eq!(found.values.keys().collect::<Vec<_>>(), ["PIN", "username"]);
    assert!(found.totp.is_some() && found.totp_code.is_none());
    let found = fetch(ExternalWanted::Path("Team/Codes 8")).await.unwrap().unwrap();
    assert!(found.totp_code.is_none());
    assert_eq!(found.totp.unwrap().parameters().digits, 8);
    let found = fetch(ExternalWanted::Domain("shop.example")).await.unwrap().unwrap();
    assert_eq!(found.values["password"].expose_secret(), "s3cr3t-5");
    assert!(fetch(ExternalWanted::Domain("nowhere.example")).await.unwrap().is_none());
    world.second.set_behaviour(Behaviour::Unreachable);
    let fault = fetch(ExternalWanted::Path("Team/Codes 7")).await.unwrap_err();
    assert_eq!(fault, "the credential provider provider 2: the store cannot be reached: nobody there");

    assert!(world.providers.known(all(), None).await.unwrap(), "some are switched on");
    let known = async |name: &str| world.providers.known(all(), Some(name)).await.unwrap();
    assert!(known("provider 1").await && known(&provider_id(1).to_string()).await);
    assert!(!known("provider 3").await && !known("nobody").await);
}
