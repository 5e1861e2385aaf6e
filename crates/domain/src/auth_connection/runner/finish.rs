//! The end of a login that succeeded: its profile is saved, what it was given is kept, and only then it is a success.

use std::collections::BTreeMap;

use secrecy::SecretString;
use time::Duration;
use url::Url;

use super::known::EnteredValue;
use super::session::ended;
use super::{FlowRunner, Next};
use crate::access::Scope;
use crate::auth_connection::{
    AuthConnection, CollectedCredential, ConnectionStatus, CredentialRef, Flow, FlowEnd, FlowError, FlowEvent,
    FlowFailure, ProfileSavePermission,
};
use crate::credential::{NewCredential, Route, Sites};
use crate::ids::SessionId;
use crate::session::{IdOrName, SessionState};
use crate::store_error::StoreError;

/// For how long it is tried to save a profile after a login's own time is over.
const SAVE_RETRY_TIMEOUT: Duration = Duration::minutes(5);

impl FlowRunner {
    /// One step of a login that is logged in.
    pub(super) async fn finish(&self, connection: &AuthConnection, flow: Flow) -> Result<Next, StoreError> {
        let Some(session) = self.connections.deps().sessions.find(flow.session).await? else {
            return self.fail(connection, &flow, ended()).await;
        };
        match session.state {
            _ if flow.outdated => self.begin_again(&flow).await,
            SessionState::Active if !flow.saving => self.let_save(flow).await,
            SessionState::Active | SessionState::Starting => {
                self.end_session(&flow).await?;
                Ok(Next::Step)
            }
            SessionState::Ended(_) if !flow.saving => self.fail(connection, &flow, ended()).await,
            // The right to save goes with the saving.
            SessionState::Ended(_) if session.shape.profile.is_some_and(|profile| !profile.save_changes) => {
                self.succeed(connection, &flow).await
            }
            SessionState::Ended(_) if self.now() < flow.expires_at + SAVE_RETRY_TIMEOUT => {
                // The node's housekeeping tries again.
                Ok(Next::Wait(self.now() + Duration::seconds(1)))
            }
            SessionState::Ended(_) => {
                let failure = FlowFailure::new(FlowError::Internal, "the profile could not be saved");
                self.fail(connection, &flow, failure).await
            }
        }
    }

    async fn let_save(&self, flow: Flow) -> Result<Next, StoreError> {
        let connections = &self.connections.deps().connections;
        let over = flow.begun_again >= Flow::MAX_BEGUN_AGAIN;
        let next = match connections.let_save(&flow, over).await? {
            ProfileSavePermission::Yes => Flow { saving: true, ..flow },
            // Saved over it, the login of the other one would be lost.
            ProfileSavePermission::Outdated => Flow { outdated: true, ..flow },
            ProfileSavePermission::NotYet => return Ok(Next::Wait(self.now() + Duration::seconds(1))),
            ProfileSavePermission::No => return Ok(Next::Step),
        };
        let _ = connections.put(&next).await?;
        Ok(Next::Step)
    }

    /// Logs in once more, in a session that has the profile as it is by now.
    async fn begin_again(&self, flow: &Flow) -> Result<Next, StoreError> {
        self.end_session(flow).await?;
        let session = SessionId::mint(&*self.connections.deps().ids);
        if let Ok(next) = flow.on(FlowEvent::BegunAgain(session), self.now()) {
            let _ = self.connections.deps().connections.put(&next).await?;
        }
        Ok(Next::Step)
    }

    async fn succeed(&self, connection: &AuthConnection, flow: &Flow) -> Result<Next, StoreError> {
        let Ok(next) = flow.on(FlowEvent::Completed, self.now()) else { return Ok(Next::Step) };
        let (kept, credential) = self.to_keep(connection, flow).await?.unzip();
        // Who was logged in already was asked for nothing: what it takes to log in is what the login before was asked for.
        let needs = (!flow.needs.is_empty() || connection.needs.is_none()).then(|| flow.needs.clone());
        let end = FlowEnd {
            status: Some(ConnectionStatus::Authenticated),
            needs,
            kept,
            credential: credential.flatten(),
            ..FlowEnd::default()
        };
        let _ = self.connections.deps().connections.end(&next, &end).await?;
        Ok(Next::Step)
    }

    /// What a person gave, to be kept as the connection's credential; and what that is called, if the connection names none yet.
    async fn to_keep(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
    ) -> Result<Option<(CollectedCredential, Option<String>)>, StoreError> {
        if !connection.settings.save_credentials {
            return Ok(None);
        }
        let Some(given) = GivenAtSite::of(self.entered(flow).unwrap_or_default(), &connection.domain) else {
            return Ok(None);
        };
        let project = self.deps.projects.find(connection.organization, connection.project).await?;
        let Some(project) = project else { return Ok(None) };
        let scope = Scope { project, unscoped: false, organization_wide: false };
        match (&connection.settings.credential, &connection.credential) {
            // Where values come from a provider, they are kept there.
            (Some(CredentialRef::Item { .. } | CredentialRef::Auto { .. } | CredentialRef::AutoAny), _) => Ok(None),
            // Typed at another site than the credential's, it is not the credential's.
            (Some(CredentialRef::Named(_)), Some(credential)) if !given.is_of(&credential.domain) => Ok(None),
            (Some(CredentialRef::Named(_)), Some(credential)) => {
                Ok(self.deps.credentials.kept_in(&scope, credential.id, given.values).ok().map(|kept| (kept, None)))
            }
            (Some(CredentialRef::Named(name)), None) => {
                let kept = self.new_credential(&scope, connection, vec![name.clone()], &given).await?;
                Ok(kept.map(|(kept, _)| (kept, None)))
            }
            (None, _) => {
                let name = format!("{} {}", connection.domain, connection.profile_name);
                let names = vec![name.clone(), format!("{name} {}", flow.id)];
                let kept = self.new_credential(&scope, connection, names, &given).await?;
                Ok(kept.map(|(kept, name)| (kept, Some(name))))
            }
        }
    }

    /// A credential by the first of the names that is free, or a change of that of the same site; with its name.
    async fn new_credential(
        &self,
        scope: &Scope,
        connection: &AuthConnection,
        names: Vec<String>,
        given: &GivenAtSite,
    ) -> Result<Option<(CollectedCredential, String)>, StoreError> {
        let credentials = &self.deps.credentials;
        for name in names {
            let name: String = name.chars().take(255).collect();
            let which = IdOrName::Name(name.clone());
            let kept = match self.connections.deps().credentials.find(connection.project, &which).await? {
                // Kept by a connection of before.
                Some(taken) if taken.domain == given.domain => {
                    credentials.kept_in(scope, taken.id, given.values.clone())
                }
                Some(_) => continue,
                None => {
                    let values = Some(given.values.clone());
                    let new = NewCredential::parse(Some(&name), Some(&given.domain), values, None, None);
                    new.map_err(Into::into).and_then(|new| credentials.kept_as_new(scope, new))
                }
            };
            return Ok(kept.ok().map(|kept| (kept, name)));
        }
        Ok(None)
    }
}

/// What a person gave at one site, which is whose credential it becomes.
struct GivenAtSite {
    /// A host name of the site.
    domain: String,
    values: BTreeMap<String, SecretString>,
}

impl GivenAtSite {
    /// Of all that was given, what was given where the password was; without a password, where the first value was. The connection's own
    /// domain stands for its site, of other sites it is the host of the page.
    fn of(entered: BTreeMap<String, EnteredValue>, domain: &str) -> Option<Self> {
        let home = entered.get("password").or_else(|| entered.values().next())?.origin.clone();
        let host = Url::parse(&home).ok()?.host_str()?.to_owned();
        let site = Sites::of_addresses([&*home]);
        let same = |origin: &str| origin == home || site.allow(origin, Route::Direct);
        let values = entered.into_iter().filter(|(_, one)| same(&one.origin)).map(|(name, one)| (name, one.value));
        let domain = if site.is_near(domain) { domain.to_owned() } else { host };
        Some(Self { domain, values: values.collect() })
    }

    /// Whether it is of the site of that host name.
    fn is_of(&self, domain: &str) -> bool {
        Sites::of_domain(&self.domain).is_near(domain)
    }
}
