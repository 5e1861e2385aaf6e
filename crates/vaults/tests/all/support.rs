//! A Connect server in memory that accepts only documented requests, and providers of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use casement_domain::CredentialProviderId;
use casement_domain::credential_provider::{
    CredentialProvider, CredentialProviders, CredentialStore, MockCredentialProviderRepository, OpenProvider,
    ProviderDeps, ProviderPlace, ProviderSettings, StorePlace,
};
use casement_domain::name::LabelName;
use casement_domain::sealing::Sealer as _;
use casement_domain::testing::{CountingIds, FixedClock, NOON, PlainSealer, organization_id};
use casement_vaults::{Connect, Keepass, NoAnswer, Reader, Stores, Web, WebAnswer};
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use ulid::Ulid;
use url::Url;

pub(crate) const TOKEN: &str = "s3cr3t-token";

/// Returns an identifier in the documented format: 26 letters and digits.
pub(crate) fn long_id(kind: char, n: usize) -> String {
    format!("{kind}{n:025}")
}

/// The behaviour of the server at the next request.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    Well,
    Answers(u16, Vec<u8>),
    Unreachable,
    Never,
}

/// One server.
pub(crate) struct Server {
    base: Url,
    /// The name and the complete items of each vault.
    pub(crate) vaults: Mutex<Vec<(String, String, Vec<Value>)>>,
    pub(crate) behaviour: Mutex<Behaviour>,
    /// The response that replaces any list of items.
    list: Mutex<Option<Vec<u8>>>,
    /// The paths of the requests.
    requests: Mutex<Vec<String>>,
}

/// Returns a login item in the documented format.
pub(crate) fn login(n: usize, title: &str, url: &str, more: Value) -> Value {
    let mut item = json!({
        "id": long_id('i', n), "title": title, "category": "LOGIN", "version": 3, "favorite": false, "tags": ["a"],
        "vault": { "id": long_id('v', 1), "name": "ignored" }, "lastEditedBy": "QNYMQJ2ZJZGUZGTC7S7VAFPRYU",
        "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-02-03T04:05:06Z", "additionalInformation": "me",
        "urls": [{ "label": "website", "primary": true, "href": url }],
    });
    let fields = json!([
        { "id": "username", "type": "STRING", "purpose": "USERNAME", "label": "username", "value": format!("me-{n}") },
        { "id": "password", "type": "CONCEALED", "purpose": "PASSWORD", "label": "password", "value": format!("s3cr3t-{n}"),
          "entropy": 120.5, "password_details": { "strength": "FANTASTIC" } },
        { "id": "notesPlain", "type": "STRING", "purpose": "NOTES", "label": "notesPlain", "value": "a note" },
    ]);
    item.as_object_mut().unwrap().insert("fields".to_owned(), fields);
    item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    item
}

impl Server {
    pub(crate) fn new(base: &str, items: Vec<Value>) -> Arc<Self> {
        Arc::new(Self {
            base: base.parse().unwrap(),
            vaults: Mutex::new(vec![(long_id('v', 1), "Team".to_owned(), items)]),
            behaviour: Mutex::new(Behaviour::Well),
            list: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = behaviour;
    }

    /// Sets the response to every list of items.
    pub(crate) fn lists(&self, items: Vec<u8>) {
        *self.list.lock() = Some(items);
    }

    /// Returns the requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    fn answer(&self, path: &str) -> (u16, Value) {
        let vaults = self.vaults.lock();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let of = |id: &str| vaults.iter().find(|(vault, ..)| vault == id);
        let missing = (404, json!({ "status": 404, "message": "not found" }));
        match parts[..] {
            ["v1", "vaults"] => {
                let vault = |(id, name, items): &(String, String, Vec<Value>)| {
                    json!({ "id": id, "name": name, "attributeVersion": 1, "contentVersion": 2, "items": items.len(),
                            "type": "USER_CREATED", "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z" })
                };
                (200, vaults.iter().map(vault).collect())
            }
            ["v1", "vaults", id, "items"] => of(id).map_or(missing, |(_, _, items)| {
                let overview = |item: &Value| {
                    let mut item = item.clone();
                    item.as_object_mut().unwrap().remove("fields");
                    item
                };
                (200, items.iter().map(overview).collect())
            }),
            ["v1", "vaults", id, "items", item] => of(id)
                .and_then(|(_, _, items)| items.iter().find(|one| one["id"] == item))
                .map_or(missing, |item| (200, item.clone())),
            _ => panic!("the documentation has no {path}"),
        }
    }
}

/// A client that reaches several servers.
#[derive(Clone)]
pub(crate) struct Net(pub(crate) Vec<Arc<Server>>);

#[async_trait]
impl Web for Net {
    async fn get(
        &self,
        url: &Url,
        bearer: &SecretString,
        most_bytes: usize,
        _: Duration,
    ) -> Result<WebAnswer, NoAnswer> {
        let server = self.0.iter().find(|server| url.as_str().starts_with(server.base.as_str()));
        let server = server.unwrap_or_else(|| panic!("nobody may be asked at {url}"));
        assert!(url.query().is_none() && url.fragment().is_none());
        let path = url.path().strip_prefix(server.base.path().trim_end_matches('/')).unwrap().to_owned();
        server.requests.lock().push(path.clone());
        // Other tasks run in between.
        tokio::task::yield_now().await;
        let behaviour = server.behaviour.lock().clone();
        let (status, body) = match behaviour {
            Behaviour::Well if bearer.expose_secret() != TOKEN => {
                (401, json!({ "status": 401, "message": "Invalid token signature" }).to_string().into_bytes())
            }
            Behaviour::Well if path.ends_with("/items") && server.list.lock().is_some() => {
                (200, server.list.lock().clone().unwrap())
            }
            Behaviour::Well => {
                let (status, body) = server.answer(&path);
                (status, body.to_string().into_bytes())
            }
            Behaviour::Answers(status, body) => (status, body),
            Behaviour::Unreachable => return Err(NoAnswer::Unreachable("nobody there".to_owned())),
            Behaviour::Never => std::future::pending().await,
        };
        if body.len() > most_bytes { Err(NoAnswer::TooLong) } else { Ok(WebAnswer { status, body: body.into() }) }
    }
}

/// Returns the path of the program that reads KeePass databases.
pub(crate) fn reader() -> Reader {
    Reader { program: env!("CARGO_BIN_EXE_casement-vaults-keepass").into(), words: Vec::new() }
}

/// Returns stores of these servers, without a file.
pub(crate) fn stores(servers: &[&Arc<Server>]) -> Arc<Stores> {
    let connect = Connect::new(Arc::new(Net(servers.iter().map(|&server| server.clone()).collect())));
    Arc::new(Stores::new(Arc::new(connect), Arc::new(Keepass::new(BTreeMap::new(), reader()))))
}

pub(crate) fn provider_id(n: u32) -> CredentialProviderId {
    CredentialProviderId::from_ulid(Ulid::from_parts(14, u128::from(n)))
}

/// Returns the n-th provider, which uses a server.
pub(crate) fn open(n: u32, server: &Server, ttl_seconds: i64) -> OpenProvider {
    OpenProvider {
        id: provider_id(n),
        version: NOON,
        place: StorePlace::PasswordManager(server.base.clone()),
        token: TOKEN.to_owned().into(),
        cache_ttl: time::Duration::seconds(ttl_seconds),
    }
}

/// Returns the n-th provider in its stored form.
pub(crate) fn stored_provider(n: u32, server: &Server) -> CredentialProvider {
    CredentialProvider {
        is_onepassword: false,
        id: provider_id(n),
        organization: organization_id(),
        name: LabelName::parse(&format!("provider {n}")).unwrap(),
        place: ProviderPlace::PasswordManager(Some(server.base.clone())),
        token: PlainSealer.seal(&CredentialProvider::seal_place(provider_id(n)), TOKEN.as_bytes()).unwrap(),
        cache_ttl_seconds: 300,
        enabled: true,
        priority: n,
        projects: Vec::new(),
        created_at: NOON,
        updated_at: NOON,
    }
}

/// Returns the use cases with these providers in order.
pub(crate) fn use_cases(providers: Vec<CredentialProvider>, store: Arc<dyn CredentialStore>) -> CredentialProviders {
    let mut rows = MockCredentialProviderRepository::new();
    let enabled: Vec<_> = providers.iter().filter(|one| one.enabled).cloned().collect();
    rows.expect_enabled().returning(move |_| Ok(enabled.clone()));
    let by_id = providers.clone();
    rows.expect_find().returning(move |_, id| Ok(by_id.iter().find(|one| one.id == id).cloned()));
    rows.expect_named().returning(move |_, name| Ok(providers.iter().find(|one| one.name.as_str() == name).cloned()));
    CredentialProviders::new(ProviderDeps {
        providers: Arc::new(rows),
        store,
        sealer: Arc::new(PlainSealer),
        clock: Arc::new(FixedClock::default()),
        ids: Arc::new(CountingIds::default()),
        settings: ProviderSettings::default(),
        max: 100,
    })
}
