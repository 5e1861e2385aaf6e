//! Auth connections and their flows: one login at a time, every step seen before the next, nothing after a deletion.

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
        has_totp_secret: false,
        created_at: NOON,
        updated_at: NOON,
    })
}

fn provider(n: u32, named: &str) -> Result<CredentialProvider, Fault> {
    Ok(CredentialProvider {
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

/// A world with two profiles, a proxy, a credential `Shop`, a provider `vault`, and the first connection of the first profile.
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

    /// Has the first connection log in with this.
    async fn uses(&self, credential: CredentialRef) -> Result<ConnectionUpdated, Fault> {
        let change = ConnectionChange { credential: Some(Some(credential)), ..ConnectionChange::default() };
        Ok(self.connections.update(auth_connection_id(1), &change, NOON).await?)
    }

    /// What is stored of the first connection.
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

/// Every member of a flow away from where it begins.
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
    // One that may ask any names none.
    let _ = site.uses(CredentialRef::AutoAny).await?;
    assert_eq!(site.providers.delete(ours, id).await?, ProviderDeleted::Yes);
    let gone = site.uses(CredentialRef::Auto { provider: "vault".to_owned() }).await?;
    assert_eq!(gone, ConnectionUpdated::ReferenceGone("credential"));
    let mut new = auth_connection(2, profile_id(1));
    new.settings.credential = Some(CredentialRef::Auto { provider: "vault".to_owned() });
    assert_eq!(site.connections.create(&new, 10).await?, ConnectionStored::ReferenceGone("credential"));
    Ok(())
}

/// Each round, a deletion or a new name meets a connection that is being told of the provider: whatever comes first, the connection names
/// none that is not there.
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

#[tokio::test]
async fn one_login_at_a_time_and_one_look_and_what_is_over_makes_room() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let second = auth_flow(2, flow.connection);
    assert_eq!(site.connections.begin(&second).await?, FlowBegun::Running(Box::new(flow.clone())));
    let look = Flow { kind: FlowKind::HealthCheck, ..auth_flow(3, flow.connection) };
    assert_eq!(site.connections.begin(&look).await?, FlowBegun::Yes);
    let gone = auth_flow(4, auth_connection_id(9));
    assert_eq!(site.connections.begin(&gone).await?, FlowBegun::Gone);
    assert_eq!(site.stored().await?.flow, Some(Box::new(flow.clone())), "a look is no login");

    let later = Flow { created_at: flow.expires_at, ..second };
    assert_eq!(site.connections.begin(&later).await?, FlowBegun::Yes);
    let expired = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(expired.status, FlowStatus::Expired);
    assert_eq!(site.stored().await?.flow, Some(Box::new(later)));

    let many = (10..20).map(|n| {
        let (connections, flow) = (
            site.connections.clone(),
            Flow { created_at: seconds(4000), expires_at: seconds(4900), ..auth_flow(n, flow.connection) },
        );
        tokio::spawn(async move { connections.begin(&flow).await })
    });
    let mut begun = 0;
    for one in many.collect::<Vec<_>>() {
        begun += u32::from(one.await?? == FlowBegun::Yes);
    }
    assert_eq!(begun, 1, "two began at once");
    Ok(())
}

#[tokio::test]
async fn a_flow_is_stored_whole_by_whoever_has_seen_the_last_of_it() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let next = full(&flow);
    assert!(site.connections.put(&next).await?);
    let stored = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(stored, Flow { revision: 1, ..next.clone() });
    assert!(!site.connections.put(&flow).await?, "an older one was stored over a newer one");
    assert_eq!(site.connections.flow(flow.id).await?, Some(stored.clone()));

    let failed = stored.on(FlowEvent::Failed(FlowFailure::new(FlowError::Captcha, "no")), seconds(5))?;
    assert!(site.connections.end(&failed, &FlowEnd::default()).await?);
    let stored = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(stored, Flow { revision: 2, ..failed });
    assert_eq!((stored.submission.clone(), stored.entered.clone()), (None, None));
    assert!(!site.connections.put(&stored).await?, "what has ended was stored again");
    assert!(!site.connections.end(&stored, &FlowEnd::default()).await?);
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_flow_and_what_it_does_to_its_connection_are_one() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let logged_in = flow.on(FlowEvent::LoggedIn("https://d1.example/".to_owned()), seconds(2))?;
    let done = logged_in.on(FlowEvent::Completed, seconds(3))?;
    let end = FlowEnd {
        status: Some(ConnectionStatus::Authenticated),
        needs: Some(vec![FlowRequirement::Totp]),
        credential: Some("made".to_owned()),
        checked_at: Some(seconds(3)),
        ..FlowEnd::default()
    };
    let unseen = Flow { revision: 5, ..done.clone() };
    assert!(!site.connections.end(&unseen, &end).await?);
    assert_eq!(site.stored().await?.status, ConnectionStatus::NeedsAuth);
    assert!(site.connections.end(&done, &end).await?);
    let stored = site.stored().await?;
    assert_eq!(
        (stored.status, stored.needs, stored.last_check_at, stored.settings.credential),
        (
            ConnectionStatus::Authenticated,
            Some(vec![FlowRequirement::Totp]),
            Some(seconds(3)),
            Some(CredentialRef::Named("made".to_owned()))
        )
    );

    // One that names a credential keeps it.
    let next = Flow { created_at: seconds(4), ..auth_flow(2, flow.connection) };
    assert_eq!(site.connections.begin(&next).await?, FlowBegun::Yes);
    let done = next.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let end = FlowEnd { credential: Some("other".to_owned()), ..FlowEnd::default() };
    assert!(site.connections.end(&done, &end).await?);
    assert_eq!(site.stored().await?.settings.credential, Some(CredentialRef::Named("made".to_owned())));

    let timeline = site.connections.timeline(flow.connection, None, PAGE).await?;
    assert_eq!(timeline.items.iter().map(|one| one.flow.id).collect::<Vec<_>>(), [auth_flow_id(2), auth_flow_id(1)]);
    let looks = site.connections.timeline(flow.connection, Some(FlowKind::HealthCheck), PAGE).await?;
    assert!(looks.items.is_empty());
    Ok(())
}

/// What a login was given, as a new credential.
fn stored(n: u32, named: &str, most: u32) -> Result<FlowEnd, Fault> {
    let secrets = SealedSecrets { values: [("password".to_owned(), vec![7])].into(), totp: None };
    let stored = CollectedCredential::New { credential: Box::new(credential(n, named)?), secrets, most };
    Ok(FlowEnd {
        status: Some(ConnectionStatus::Authenticated),
        collected: Some(stored),
        credential: Some(named.to_owned()),
        ..FlowEnd::default()
    })
}

#[tokio::test]
async fn what_a_login_was_given_is_stored_with_its_end_or_not_at_all() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let done = flow.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let names = async || {
        let listed = site.credentials.list(testing::project_id(), &CredentialFilter::default(), PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.name.as_str().to_owned()).collect::<Vec<_>>())
    };
    // Not by whoever has not seen the last, nor where there is no place; the login is a success all the same.
    let unseen = Flow { revision: 5, ..done.clone() };
    assert!(!site.connections.end(&unseen, &stored(2, "mine", 10)?).await?);
    assert_eq!(names().await?, ["Shop"]);
    assert!(site.connections.end(&done, &stored(2, "mine", 1)?).await?);
    assert_eq!((names().await?, site.stored().await?.settings.credential), (vec!["Shop".to_owned()], None));
    assert_eq!(site.stored().await?.status, ConnectionStatus::Authenticated);

    // Nor under a name that is taken.
    let again = |n: u32| Flow { created_at: seconds(i64::from(n)), ..auth_flow(n, flow.connection) };
    let done = async |n: u32| {
        assert_eq!(site.connections.begin(&again(n)).await?, FlowBegun::Yes);
        Ok::<_, Fault>(again(n).on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?)
    };
    assert!(site.connections.end(&done(2).await?, &stored(2, "SHOP", 10)?).await?);
    assert_eq!((names().await?.len(), site.stored().await?.settings.credential), (1, None));
    assert!(site.connections.end(&done(3).await?, &stored(2, "mine", 10)?).await?);
    let stored = site.stored().await?;
    assert_eq!(stored.settings.credential, Some(CredentialRef::Named("mine".to_owned())));
    let mine = stored.credential.ok_or("no credential")?;
    assert_eq!(mine.value_keys, ["password"]);

    // In one that is there.
    let change = CredentialChange { values: [("password".to_owned(), vec![8])].into(), ..CredentialChange::default() };
    let end = FlowEnd {
        collected: Some(CollectedCredential::Changed { id: mine.id, change: change.clone() }),
        ..FlowEnd::default()
    };
    assert!(site.connections.end(&done(4).await?, &end).await?);
    let secrets = async || site.credentials.secrets(mine.id).await.map(|found| found.map(|secrets| secrets.values));
    assert_eq!(secrets().await?, Some([("password".to_owned(), vec![8])].into()));

    // After a deletion nothing is kept.
    let late = done(5).await?;
    assert!(site.connections.delete(flow.connection).await?.is_some());
    assert!(!site.connections.end(&late, &stored(3, "late", 10)?).await?);
    let change = CredentialChange { values: [("password".to_owned(), vec![9])].into(), ..change };
    let end = FlowEnd { collected: Some(CollectedCredential::Changed { id: mine.id, change }), ..FlowEnd::default() };
    assert!(!site.connections.end(&late, &end).await?);
    assert_eq!(names().await?.len(), 2);
    assert_eq!(secrets().await?, Some([("password".to_owned(), vec![8])].into()));
    Ok(())
}

#[tokio::test]
async fn the_login_that_follows_on_a_look_begins_with_the_end_of_it() -> TestResult {
    let site = Site::new().await?;
    let look = Flow { kind: FlowKind::HealthCheck, ..auth_flow(1, auth_connection_id(1)) };
    assert_eq!(site.connections.begin(&look).await?, FlowBegun::Yes);
    let over = look.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let next = Flow { kind: FlowKind::Reauth, ..auth_flow(2, look.connection) };
    let end = FlowEnd { next: Some(Box::new(next.clone())), ..FlowEnd::default() };
    let unseen = Flow { revision: 5, ..over.clone() };
    assert!(!site.connections.end(&unseen, &end).await?);
    assert_eq!(site.connections.flow(next.id).await?, None);
    assert!(site.connections.end(&over, &end).await?);
    assert_eq!(site.connections.flow(next.id).await?, Some(next));
    Ok(())
}

#[tokio::test]
async fn a_flow_is_carried_by_one_node_as_long_as_that_lives() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let carried = site.connections.to_carry(node_id()).await?;
    assert_eq!(carried.iter().map(|one| (one.flow, one.connection)).collect::<Vec<_>>(), [(flow.id, flow.connection)]);
    let taken = site.connections.take(flow.id, other_node()).await?.ok_or("not taken")?;
    assert_eq!((taken.node, taken.revision), (Some(other_node()), 1));
    assert_eq!(site.connections.to_carry(node_id()).await?, []);
    assert_eq!(site.connections.take(flow.id, node_id()).await?, None);
    assert_eq!(site.connections.to_carry(other_node()).await?.len(), 1, "its own next life finds it");
    site.world.silence(other_node()).await?;
    assert_eq!(site.connections.to_carry(node_id()).await?.len(), 1);
    let taken = site.connections.take(flow.id, node_id()).await?.ok_or("not taken over")?;
    assert_eq!((taken.node, taken.revision), (Some(node_id()), 2));

    // One that has ended is carried until nothing of its session is left.
    let open = Flow { open: true, ..taken };
    assert!(site.connections.put(&open).await?);
    let open = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert!(site.connections.end(&open.on(FlowEvent::Expired, NOON)?, &FlowEnd::default()).await?);
    assert_eq!(site.connections.to_carry(node_id()).await?.len(), 1);
    site.connections.closed(flow.id).await?;
    assert_eq!(site.connections.to_carry(node_id()).await?, []);
    assert!(site.connections.flow(flow.id).await?.is_some(), "the timeline keeps it");
    Ok(())
}

#[tokio::test]
async fn after_a_deletion_nothing_is_written_any_more_neither_flow_nor_profile() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    let session = site.session_of(&flow).await?;
    assert!(site.connections.put(&Flow { open: true, session_made: true, ..flow.clone() }).await?);
    let flow = site.connections.flow(flow.id).await?.ok_or("gone")?;
    // It was logged in, and about to save.
    assert_eq!(site.connections.let_save(&flow, false).await?, ProfileSavePermission::Yes);
    let deleted = site.connections.delete(flow.connection).await?.ok_or("not there")?;
    assert_eq!(deleted.sessions, [session.id]);

    let canceled = site.connections.flow(flow.id).await?.ok_or("gone")?;
    assert_eq!(canceled.status, FlowStatus::Canceled);
    assert!(!site.connections.put(&flow).await?);
    let done = flow.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    assert!(!site.connections.end(&done, &FlowEnd::default()).await?);
    assert_eq!(site.connections.let_save(&flow, true).await?, ProfileSavePermission::No);
    let ended = Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session.clone() };
    assert_eq!(site.world.sessions.end(&session, &ended).await?, Replaced::Yes);
    let version = ProfileVersion {
        id: ProfileVersionId::from_ulid(Ulid::from_parts(14, 1)),
        profile: profile_id(1),
        session: session.id,
        based_on: None,
        key: vec![1],
        created_at: NOON,
    };
    assert_eq!(site.profiles.save(&version).await?, VersionStored::NotWanted);

    // Its node still has to end the session; then nothing of it is left.
    assert_eq!(site.connections.to_carry(node_id()).await?.len(), 1);
    site.connections.closed(flow.id).await?;
    assert_eq!(site.connections.flow(flow.id).await?, None);
    Ok(())
}

#[tokio::test]
async fn only_a_flow_that_goes_on_lets_its_session_save() -> TestResult {
    let site = Site::new().await?;
    let flow = site.begun(1).await?;
    assert_eq!(site.connections.let_save(&flow, false).await?, ProfileSavePermission::No, "there is no session yet");
    let session = site.session_of(&flow).await?;
    let saves = async || {
        let found = site.world.sessions.find(session.id).await?.ok_or("gone")?;
        Ok::<_, Fault>(found.shape.profile.is_some_and(|profile| profile.save_changes))
    };
    assert!(!saves().await?);
    assert_eq!(site.connections.let_save(&flow, false).await?, ProfileSavePermission::Yes);
    assert!(saves().await?);
    assert_eq!(site.connections.let_save(&flow, false).await?, ProfileSavePermission::Yes, "it may already");
    Ok(())
}

#[tokio::test]
async fn a_flow_saves_no_profile_over_an_unseen_version_nor_beside_another_flow() -> TestResult {
    let site = Site::new().await?;
    let second = AuthConnection { domain: "second.example".to_owned(), ..auth_connection(2, profile_id(1)) };
    assert_eq!(site.connections.create(&second, 9).await?, ConnectionStored::Yes);
    let (one, two) = (site.begun(1).await?, auth_flow(2, second.id));
    assert_eq!(site.connections.begin(&two).await?, FlowBegun::Yes);
    let session = site.session_of(&one).await?;
    site.nth_session_of(2, &two).await?;

    assert_eq!(site.connections.let_save(&one, false).await?, ProfileSavePermission::Yes);
    assert_eq!(site.connections.let_save(&two, true).await?, ProfileSavePermission::NotYet);
    let version = ProfileVersion {
        id: ProfileVersionId::from_ulid(Ulid::from_parts(14, 1)),
        profile: profile_id(1),
        session: session.id,
        based_on: None,
        key: vec![1],
        created_at: NOON,
    };
    assert!(matches!(site.profiles.save(&version).await?, VersionStored::Yes(_)));
    assert_eq!(site.connections.let_save(&two, false).await?, ProfileSavePermission::Outdated);
    assert_eq!(site.connections.let_save(&two, true).await?, ProfileSavePermission::Yes);
    Ok(())
}

#[tokio::test]
async fn looks_are_due_after_their_interval_and_never_while_the_profile_is_in_use() -> TestResult {
    let site = Site::new().await?;
    let due = async |at: i64| {
        let found = site.connections.due(seconds(at), 10).await?;
        Ok::<_, Fault>(found.into_iter().map(|one| one.id).collect::<Vec<_>>())
    };
    assert_eq!(due(9000).await?, [], "it was never logged in");
    let flow = site.begun(1).await?;
    let done = flow.on(FlowEvent::LoggedIn(String::new()), NOON)?.on(FlowEvent::Completed, NOON)?;
    let end = FlowEnd { status: Some(ConnectionStatus::Authenticated), ..FlowEnd::default() };
    assert!(site.connections.end(&done, &end).await?);
    assert_eq!(due(3599).await?, []);

    let session = site.session_of(&auth_flow(7, flow.connection)).await?;
    assert_eq!(due(3600).await?, [], "its profile is in use");
    let ended = Session { state: SessionState::Ended(EndReason::Deleted), ended_at: Some(NOON), ..session.clone() };
    assert_eq!(site.world.sessions.end(&session, &ended).await?, Replaced::Yes);
    let off = ConnectionChange { health_checks: Some(false), ..ConnectionChange::default() };
    let _ = site.connections.update(flow.connection, &off, NOON).await?;
    assert_eq!(due(3600).await?, [], "nobody wants them");
    let on = ConnectionChange { health_checks: Some(true), ..ConnectionChange::default() };
    let _ = site.connections.update(flow.connection, &on, NOON).await?;
    let next = Flow { created_at: seconds(10), ..auth_flow(2, flow.connection) };
    assert_eq!(site.connections.begin(&next).await?, FlowBegun::Yes);
    assert_eq!(due(3600).await?, [], "it is being logged in");
    assert!(site.connections.end(&next.on(FlowEvent::Expired, NOON)?, &FlowEnd::default()).await?);
    assert_eq!(due(3600).await?, [flow.connection]);
    assert_eq!(due(3601).await?, [], "it was taken on");
    Ok(())
}

#[tokio::test]
async fn flows_of_long_ago_are_forgotten_but_the_latest() -> TestResult {
    let site = Site::new().await?;
    for n in 1..=3 {
        let flow = Flow { created_at: seconds(i64::from(n)), ..auth_flow(n, auth_connection_id(1)) };
        assert_eq!(site.connections.begin(&flow).await?, FlowBegun::Yes);
        let over = flow.on(FlowEvent::Expired, seconds(i64::from(n)))?;
        assert!(site.connections.end(&over, &FlowEnd::default()).await?);
    }
    site.connections.forget(seconds(2)).await?;
    let left = site.connections.timeline(auth_connection_id(1), None, PAGE).await?;
    assert_eq!(left.items.iter().map(|one| one.flow.id).collect::<Vec<_>>(), [auth_flow_id(3), auth_flow_id(2)]);
    site.connections.forget(seconds(99)).await?;
    let left = site.connections.timeline(auth_connection_id(1), None, PAGE).await?;
    assert_eq!(left.items.iter().map(|one| one.flow.id).collect::<Vec<_>>(), [auth_flow_id(3)]);
    assert_eq!(site.world.sessions.find(session_id(3)).await?, None);
    Ok(())
}
