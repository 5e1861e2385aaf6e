//! Auth connections and their flows: one login at a time, no lost steps, no change after a deletion.

mod flows;

use casement_domain::auth_connection::{
    AuthConnection, AuthConnectionRepository as _, CollectedCredential, ConnectionChange, ConnectionFilter,
    ConnectionStatus, ConnectionStored, ConnectionUpdated, CredentialRef, Flow, FlowBegun, FlowEnd, FlowError,
    FlowEvent, FlowFailure, FlowKind, FlowRequirement, FlowSettings, FlowStatus, ProfileSavePermission,
    RequestedChoice, RequestedField, Settings,
};
use casement_domain::browser::{Browser, BrowserState};
use casement_domain::credential::{
    Credential, CredentialChange, CredentialFilter, CredentialRepository as _, CredentialStored, CredentialUpdated,
    SealedSecrets,
};
use casement_domain::credential_provider::{
    CredentialProvider, CredentialProviderRepository as _, ProviderChange, ProviderDeleted, ProviderPlace,
    ProviderStored, ProviderUpdated,
};
use casement_domain::login_page::{ChoiceKind, FieldKind, HostPattern, InputKind, MfaKind, Progress};
use casement_domain::page::Page;
use casement_domain::profile::{
    LoadedProfile, ProfileDeleted, ProfileRepository as _, ProfileStored, ProfileVersion, VersionStored,
};
use casement_domain::project::{ProjectDeleted, ProjectRepository as _};
use casement_domain::proxy::{ProxyDeleted, ProxyRepository as _, ProxyStored};
use casement_domain::session::{Created, EndReason, Session, SessionRepository as _, SessionState};
use casement_domain::testing::{
    self, NOON, auth_connection, auth_connection_id, auth_flow, auth_flow_id, browser_id, node_id, session_id,
};
use casement_domain::{
    CredentialId, CredentialProviderId, ProfileId, ProfileVersionId, ProjectId, ProxyId, Replaced, ReplayId,
};
use casement_postgres::{PgAuthConnections, PgCredentialProviders, PgCredentials, PgProfiles, PgProxies};
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, label, other_node, seconds};

const PAGE: Page = Page { limit: 100, offset: 0 };

fn profile_id(n: u32) -> ProfileId {
    ProfileId::from_ulid(Ulid::from_parts(13, u128::from(n)))
}

fn proxy_id() -> ProxyId {
    ProxyId::from_ulid(Ulid::from_parts(12, 1))
}

fn credential(n: u32, named: &str) -> Result<Credential, Fault> {
    Ok(Credential {
        id: CredentialId::from_ulid(Ulid::from_parts(14, u128::from(n))),
        project: testing::project_id(),
        name: label(named)?,
        domain: "d1.example".to_owned(),
        sso_provider: Some("google".to_owned()),
        value_keys: vec!["username".to_owned()],
        totp: None,
        created_at: NOON,
        updated_at: NOON,
    })
}

fn provider(n: u32, named: &str) -> Result<CredentialProvider, Fault> {
    Ok(CredentialProvider {
        is_onepassword: false,
        id: CredentialProviderId::from_ulid(Ulid::from_parts(15, u128::from(n))),
        organization: testing::organization_id(),
        name: label(named)?,
        place: ProviderPlace::Keepass("team".to_owned()),
        token: vec![1],
        cache_ttl_seconds: 300,
        enabled: true,
        priority: 0,
        projects: Vec::new(),
        created_at: NOON,
        updated_at: NOON,
    })
}

/// A world with two profiles, a proxy, a credential `Shop`, a provider `vault`, and the first connection of the first
/// profile.
struct Site {
    world: World,
    connections: PgAuthConnections,
    profiles: PgProfiles,
    credentials: PgCredentials,
    providers: PgCredentialProviders,
}

impl Site {
    async fn new() -> Result<Self, Fault> {
        let world = World::new().await?;
        let database = || world.db.database().clone();
        let (connections, profiles) = (PgAuthConnections::new(database()), PgProfiles::new(database()));
        for (n, name) in [(1, "ann"), (2, "bob")] {
            assert_eq!(profiles.create(&testing::profile(profile_id(n), name), 10).await?, ProfileStored::Yes);
        }
        let proxy = testing::proxy(proxy_id(), "way");
        assert_eq!(PgProxies::new(database()).create(&proxy, 10).await?, ProxyStored::Yes);
        let (credentials, providers) = (PgCredentials::new(database()), PgCredentialProviders::new(database()));
        let secrets = SealedSecrets { values: [("username".to_owned(), vec![1])].into(), totp: None };
        assert_eq!(credentials.create(&credential(1, "Shop")?, &secrets, 10).await?, CredentialStored::Yes);
        assert_eq!(providers.create(&provider(1, "vault")?, 10).await?, ProviderStored::Yes(0));
        let site = Self { world, connections, profiles, credentials, providers };
        assert_eq!(site.connections.create(&first(), 10).await?, ConnectionStored::Yes);
        Ok(site)
    }

    /// Sets the credential of the first connection.
    async fn uses(&self, credential: CredentialRef) -> Result<ConnectionUpdated, Fault> {
        let change = ConnectionChange { credential: Some(Some(credential)), ..ConnectionChange::default() };
        Ok(self.connections.update(auth_connection_id(1), &change, NOON).await?)
    }

    /// The stored first connection.
    async fn stored(&self) -> Result<AuthConnection, Fault> {
        self.connections.any(auth_connection_id(1)).await?.ok_or_else(|| "it is gone".into())
    }

    async fn begun(&self, n: u32) -> Result<Flow, Fault> {
        let flow = auth_flow(n, auth_connection_id(1));
        assert_eq!(self.connections.begin(&flow).await?, FlowBegun::Yes);
        Ok(flow)
    }

    /// The active session of a flow, with its browser, which has loaded the first profile.
    async fn session_of(&self, flow: &Flow) -> Result<Session, Fault> {
        self.nth_session_of(1, flow).await
    }

    async fn nth_session_of(&self, n: u32, flow: &Flow) -> Result<Session, Fault> {
        let profile = LoadedProfile { id: profile_id(1), version: None, save_changes: false };
        let mut session = testing::session(n);
        session.id = flow.session;
        session.shape.profile = Some(profile);
        let browser = Browser {
            id: browser_id(n),
            node: node_id(),
            pool: None,
            shape: session.shape.clone(),
            state: BrowserState::Leased,
            session: Some(session.id),
            created_at: NOON,
        };
        session.browser = Some(browser.id);
        let made = self.world.sessions.create(testing::organization_id(), &session, Some(browser)).await?;
        assert_eq!(made, Created::Yes);
        Ok(session)
    }
}

fn first() -> AuthConnection {
    auth_connection(1, profile_id(1))
}

/// The flow with every field changed from its initial value.
fn full(flow: &Flow) -> Flow {
    Flow {
        unattended: true,
        session_made: true,
        open: true,
        proxy: Some(proxy_id()),
        record_session: true,
        begun_with: Some(Box::new(FlowSettings {
            allowed_domains: first().settings.allowed_domains,
            save_credentials: true,
            credential: Some(CredentialRef::Item { provider: "vault".to_owned(), path: "Web/Shop".to_owned() }),
            organization_credential: true,
            credential_id: Some(CredentialId::from_ulid(Ulid::from_parts(14, 1))),
            login_url: Some("https://d1.example/in".to_owned()),
            connection_updated_at: NOON + time::Duration::microseconds(1),
        })),
        replay: Some(ReplayId::from_ulid(Ulid::from_parts(9, 9))),
        fields: vec![RequestedField {
            id: "password".to_owned(),
            name: "password".to_owned(),
            kind: FieldKind::Password,
            input: InputKind::Password,
            label: "Passwort \u{202e}".to_owned(),
            hint: Some("eight".to_owned()),
            placeholder: Some("••••".to_owned()),
            selector: "#p".to_owned(),
            required: true,
            mfa: Some(MfaKind::Password),
            options: vec!["North".to_owned(), "South".to_owned()],
            rejected: true,
        }],
        choices: vec![RequestedChoice {
            id: "sms".to_owned(),
            kind: ChoiceKind::MfaMethod,
            label: "Text".to_owned(),
            description: Some("to your phone".to_owned()),
            selector: "#s".to_owned(),
            xpath: "//a".to_owned(),
            mfa: Some(MfaKind::Sms),
            target: Some("•• 42".to_owned()),
            provider: Some("x".to_owned()),
        }],
        external_action: Some("Look at your phone".to_owned()),
        website_error: Some("No".to_owned()),
        submission: Some(vec![1, 2]),
        entered: Some(vec![3]),
        needs: vec![
            FlowRequirement::Value("a:b".to_owned()),
            FlowRequirement::Totp,
            FlowRequirement::SmsCode,
            FlowRequirement::EmailCode,
            FlowRequirement::OtherCode,
            FlowRequirement::External,
            FlowRequirement::Choice("By: text".to_owned()),
        ],
        progress: Progress {
            identifier: true,
            password: true,
            code: true,
            choice: true,
            external: true,
            captcha: true,
        },
        acts: 7,
        refusals: 2,
        handoff: Some(vec![4]),
        handoff_used_at: Some(seconds(3)),
        page_key: Some([5; 32]),
        updated_at: seconds(4),
        ..flow.clone()
    }
}

#[tokio::test]
async fn a_connection_is_stored_as_it_was_reported_and_found_in_its_project_alone() -> TestResult {
    let site = Site::new().await?;
    let settings = Settings {
        allowed_domains: vec![HostPattern::parse("*.idp.example")?, HostPattern::parse("a.example")?],
        auto_reauth: false,
        health_checks: false,
        health_check_interval_seconds: 300,
        record_session: true,
        save_credentials: false,
        credential: Some(CredentialRef::Item { provider: "vault".to_owned(), path: "Web/Shop".to_owned() }),
        organization_credential: true,
        login_url: Some("https://d2.example/in".to_owned()),
        proxy: Some(proxy_id()),
    };
    let second = AuthConnection { settings, created_at: seconds(1), ..auth_connection(2, profile_id(1)) };
    assert_eq!(site.connections.create(&second, 10).await?, ConnectionStored::Yes);
    let (ours, others) = (testing::project_id(), ProjectId::from_ulid(Ulid::from_parts(1, 99)));
    assert_eq!(site.connections.find(ours, second.id).await?, Some(second.clone()));
    assert_eq!(site.connections.find(others, second.id).await?, None);

    let again = AuthConnection { id: auth_connection_id(3), ..first() };
    assert_eq!(site.connections.create(&again, 10).await?, ConnectionStored::Exists);
    let other = auth_connection(3, profile_id(2));
    let full = site.connections.create(&other, 2).await?;
    assert!(matches!(full, ConnectionStored::LimitExceeded(limit) if (limit.value, limit.used) == (2, 2)), "{full:?}");
    let orphan = auth_connection(3, profile_id(9));
    assert_eq!(site.connections.create(&orphan, 10).await?, ConnectionStored::ReferenceGone("profile_name"));
    let foreign = AuthConnection { project: others, ..other.clone() };
    assert_eq!(site.connections.create(&foreign, 10).await?, ConnectionStored::ProjectGone);
    assert_eq!(site.connections.create(&other, 10).await?, ConnectionStored::Yes);

    let list = async |domain: Option<&str>, profile: Option<&str>, query: Option<&str>| {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let filter = ConnectionFilter { domain: text(domain), profile_name: text(profile), query: text(query) };
        let listed = site.connections.list(ours, &filter, PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.domain).collect::<Vec<_>>())
    };
    assert_eq!(list(None, None, None).await?, ["d2.example", "d3.example", "d1.example"]);
    assert_eq!(list(Some("D1.example"), None, None).await?, ["d1.example"]);
    assert_eq!(list(None, Some("BOB"), None).await?, ["d3.example"]);
    assert_eq!(list(None, None, Some("NN")).await?, ["d2.example", "d1.example"]);
    assert_eq!(list(None, None, Some("d_.")).await?, [""; 0]);
    assert_eq!(list(None, None, Some(&auth_connection_id(1).to_string())).await?, ["d1.example"]);
    Ok(())
}

#[tokio::test]
async fn an_update_changes_what_is_given_and_nothing_else() -> TestResult {
    let site = Site::new().await?;
    let named = Some(Some(CredentialRef::Named("Shop".to_owned())));
    for change in [
        ConnectionChange { auto_reauth: Some(false), ..ConnectionChange::default() },
        ConnectionChange { proxy: Some(Some(proxy_id())), ..ConnectionChange::default() },
        ConnectionChange { credential: named, ..ConnectionChange::default() },
        ConnectionChange { login_url: Some(Some("https://d1.example/x".to_owned())), ..ConnectionChange::default() },
        ConnectionChange { health_check_interval_seconds: Some(500), ..ConnectionChange::default() },
        ConnectionChange {
            credential: Some(Some(CredentialRef::Auto { provider: "vault".to_owned() })),
            ..ConnectionChange::default()
        },
        ConnectionChange { credential: Some(Some(CredentialRef::AutoAny)), ..ConnectionChange::default() },
        ConnectionChange {
            credential: Some(None),
            proxy: Some(None),
            login_url: Some(None),
            ..ConnectionChange::default()
        },
    ] {
        let before = site.stored().await?;
        let settings = change.apply(&before.settings);
        let named = matches!(settings.credential, Some(CredentialRef::Named(_)));
        let credential = named.then(|| credential(1, "Shop")).transpose()?;
        let expected = AuthConnection { settings, credential, updated_at: seconds(9), ..before };
        let changed = site.connections.update(auth_connection_id(1), &change, seconds(9)).await?;
        assert_eq!(changed, ConnectionUpdated::Yes(Box::new(expected.clone())));
        assert_eq!(site.stored().await?, expected);
    }
    let gone = ProxyId::from_ulid(Ulid::from_parts(12, 9));
    let change = ConnectionChange { proxy: Some(Some(gone)), ..ConnectionChange::default() };
    let refused = site.connections.update(auth_connection_id(1), &change, NOON).await?;
    assert_eq!(refused, ConnectionUpdated::ReferenceGone("proxy"));
    let missing = site.connections.update(auth_connection_id(9), &ConnectionChange::default(), NOON).await?;
    assert_eq!(missing, ConnectionUpdated::NotFound);
    Ok(())
}

#[tokio::test]
async fn what_a_connection_names_is_not_deleted_under_it() -> TestResult {
    let site = Site::new().await?;
    let proxies = PgProxies::new(site.world.db.database().clone());
    let change = ConnectionChange { proxy: Some(Some(proxy_id())), ..ConnectionChange::default() };
    let _ = site.connections.update(auth_connection_id(1), &change, NOON).await?;
    assert_eq!(site.profiles.delete(profile_id(1), NOON).await?, ProfileDeleted::InUse);
    assert_eq!(proxies.delete(testing::project_id(), proxy_id(), NOON).await?, ProxyDeleted::InUse);
    let refused = site.world.projects.delete(testing::organization_id(), testing::project_id(), NOON).await?;
    assert!(
        matches!(&refused, ProjectDeleted::InUse(active) if active.iter().any(|one| one.kind == "auth connections")),
        "{refused:?}"
    );
    assert!(site.connections.delete(auth_connection_id(1)).await?.is_some());
    assert_eq!(site.connections.delete(auth_connection_id(1)).await?, None);
    assert_eq!(site.profiles.delete(profile_id(1), NOON).await?, ProfileDeleted::Yes);
    assert_eq!(proxies.delete(testing::project_id(), proxy_id(), NOON).await?, ProxyDeleted::Yes);
    Ok(())
}

#[tokio::test]
async fn the_credential_that_a_connection_names_comes_with_it_as_long_as_it_is_there() -> TestResult {
    let site = Site::new().await?;
    let (shop, other) = (credential(1, "Shop")?, credential(2, "other")?);
    assert_eq!(site.credentials.create(&other, &SealedSecrets::default(), 10).await?, CredentialStored::Yes);
    let other = Credential { value_keys: Vec::new(), ..other };
    for (named, found) in [("shop", &shop), ("other", &other)] {
        let _ = site.uses(CredentialRef::Named(named.to_owned())).await?;
        assert_eq!(site.stored().await?.credential.as_ref(), Some(found), "{named}");
    }
    assert!(site.credentials.delete(other.id).await?);
    let after = site.stored().await?;
    assert_eq!(after.settings.credential, Some(CredentialRef::Named("other".to_owned())));
    assert_eq!(after.credential, None);
    let again = site.uses(CredentialRef::Named("other".to_owned())).await?;
    assert_eq!(again, ConnectionUpdated::ReferenceGone("credential"));
    Ok(())
}

#[tokio::test]
async fn what_a_connection_logs_in_with_may_be_called_otherwise() -> TestResult {
    let site = Site::new().await?;
    let ours = testing::organization_id();
    let stored = async || Ok::<_, Fault>(site.stored().await?.settings.credential);
    let renamed = CredentialChange { name: Some(label("Market")?), ..CredentialChange::default() };

    let _ = site.uses(CredentialRef::Named("SHOP".to_owned())).await?;
    assert!(matches!(
        site.credentials.update(credential(1, "Shop")?.id, &renamed, NOON).await?,
        CredentialUpdated::Yes(_)
    ));
    assert_eq!(stored().await?, Some(CredentialRef::Named("Market".to_owned())));
    assert_eq!(site.stored().await?.credential.map(|it| it.name), Some(label("Market")?));

    let id = provider(1, "vault")?.id;
    let rename = async |name: &str| {
        let change = ProviderChange { name: Some(label(name)?), ..ProviderChange::default() };
        Ok::<_, Fault>(matches!(site.providers.update(ours, id, &change, NOON).await?, ProviderUpdated::Yes(_)))
    };
    let path = || "Web/Shop".to_owned();
    let _ = site.uses(CredentialRef::Item { provider: "Vault".to_owned(), path: path() }).await?;
    assert!(rename("safe").await?);
    assert_eq!(stored().await?, Some(CredentialRef::Item { provider: "safe".to_owned(), path: path() }));
    let by_id = CredentialRef::Auto { provider: id.to_string() };
    let _ = site.uses(by_id.clone()).await?;
    assert!(rename("vault").await?);
    assert_eq!(stored().await?, Some(by_id), "an identifier is no name");
    Ok(())
}

#[tokio::test]
async fn a_provider_is_not_deleted_while_a_connection_names_it() -> TestResult {
    let site = Site::new().await?;
    let ours = testing::organization_id();
    let id = provider(1, "vault")?.id;
    for named in ["VAULT".to_owned(), id.to_string()] {
        for credential in [
            CredentialRef::Auto { provider: named.clone() },
            CredentialRef::Item { provider: named.clone(), path: "Web/Shop".to_owned() },
        ] {
            let stored = site.uses(credential.clone()).await?;
            assert!(matches!(stored, ConnectionUpdated::Yes(_)), "{stored:?}");
            assert_eq!(site.providers.delete(ours, id).await?, ProviderDeleted::InUse, "{credential:?}");
        }
    }
    // A connection that may use any provider refers to none.
    let _ = site.uses(CredentialRef::AutoAny).await?;
    assert_eq!(site.providers.delete(ours, id).await?, ProviderDeleted::Yes);
    let gone = site.uses(CredentialRef::Auto { provider: "vault".to_owned() }).await?;
    assert_eq!(gone, ConnectionUpdated::ReferenceGone("credential"));
    let mut new = auth_connection(2, profile_id(1));
    new.settings.credential = Some(CredentialRef::Auto { provider: "vault".to_owned() });
    assert_eq!(site.connections.create(&new, 10).await?, ConnectionStored::ReferenceGone("credential"));
    Ok(())
}

/// In each round, the deletion or renaming of the provider races with a connection that is set to it. In any order, the
/// connection refers to an existing provider.
#[tokio::test]
async fn a_connection_never_names_a_provider_that_went_while_it_was_stored() -> TestResult {
    let site = Site::new().await?;
    let ours = testing::organization_id();
    for round in 0..20_u32 {
        let name = format!("p{round}");
        let new = provider(round + 10, &name)?;
        assert!(matches!(site.providers.create(&new, 100).await?, ProviderStored::Yes(_)));
        let change = ProviderChange { name: Some(label(&format!("q{round}"))?), ..ProviderChange::default() };
        let leaves = async {
            if round % 2 == 0 {
                return Ok::<_, Fault>(site.providers.delete(ours, new.id).await? == ProviderDeleted::Yes);
            }
            Ok(matches!(site.providers.update(ours, new.id, &change, NOON).await?, ProviderUpdated::Yes(_)))
        };
        let (reported, left) = tokio::join!(site.uses(CredentialRef::Auto { provider: name.clone() }), leaves);
        let (reported, left) = (matches!(reported?, ConnectionUpdated::Yes(_)), left?);
        assert!(if round % 2 == 0 { reported != left } else { left }, "{round}: told {reported}, left {left}");
        let Some(CredentialRef::Auto { provider: named }) = site.stored().await?.settings.credential else {
            assert!(!reported);
            continue;
        };
        assert!(site.providers.named(ours, &named).await?.is_some(), "{round}: {named}");
    }
    Ok(())
}
