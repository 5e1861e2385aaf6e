//! The end of a login: the profile is saved, then the collected credential is stored, and only then the login succeeds.

use std::collections::BTreeMap;

use secrecy::SecretString;
use time::Duration;
use url::Url;

use super::secrets::EnteredValue;
use super::session::ended;
use super::{FlowRunner, Next};
use crate::access::Scope;
use crate::auth_connection::{
    AuthConnection, CollectedCredential, ConnectionStatus, CredentialRef, Flow, FlowEnd, FlowError, FlowEvent,
    FlowFailure, ProfileSavePermission,
};
use crate::credential::{NewCredential, Route, Sites, TotpRequest};
use crate::ids::SessionId;
use crate::permission::Permissions;
use crate::session::{IdOrName, SessionState};
use crate::store_error::StoreError;

/// The time for which saving the profile is retried after the flow has expired.
const SAVE_RETRY_TIMEOUT: Duration = Duration::minutes(5);

impl FlowRunner {
    /// Takes one step of a flow whose browser is logged in.
    pub(super) async fn finish(&self, connection: &AuthConnection, flow: Flow) -> Result<Next, StoreError> {
        let Some(session) = self.connections.deps().sessions.find(flow.session).await? else {
            return self.fail(connection, &flow, ended()).await;
        };
        match session.state {
            _ if flow.outdated => self.begin_again(&flow).await,
            SessionState::Active if !flow.saving => self.permit_saving(flow).await,
            SessionState::Active | SessionState::Starting => {
                self.end_session(&flow).await?;
                Ok(Next::Step)
            }
            SessionState::Ended(_) if !flow.saving => self.fail(connection, &flow, ended()).await,
            // Saving the profile revokes the permission to save it.
            SessionState::Ended(_) if session.shape.profile.is_some_and(|profile| !profile.save_changes) => {
                self.succeed(connection, &flow).await
            }
            SessionState::Ended(_) if self.now() < flow.expires_at + SAVE_RETRY_TIMEOUT => {
                // A background job of the node retries to save the profile.
                Ok(Next::Wait(self.now() + Duration::seconds(1)))
            }
            SessionState::Ended(_) => {
                let failure = FlowFailure::new(FlowError::Internal, "the profile could not be saved");
                self.fail(connection, &flow, failure).await
            }
        }
    }

    async fn permit_saving(&self, flow: Flow) -> Result<Next, StoreError> {
        let connections = &self.connections.deps().connections;
        let over = flow.begun_again >= Flow::MAX_BEGUN_AGAIN;
        let next = match connections.permit_save(&flow, over).await? {
            ProfileSavePermission::Yes => Flow { saving: true, ..flow },
            // Saving would overwrite the login of another flow.
            ProfileSavePermission::Outdated => Flow { outdated: true, ..flow },
            ProfileSavePermission::NotYet => return Ok(Next::Wait(self.now() + Duration::seconds(1))),
            ProfileSavePermission::No => return Ok(Next::Step),
        };
        let _ = connections.put(&next).await?;
        Ok(Next::Step)
    }

    /// Logs in once more, in a session that loads the newest version of the profile.
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
        let (collected, name) = self.collected_credential(connection, flow).await?.unzip();
        // If the profile was logged in already, the requirements of the last login stay in force.
        let needs = (!flow.needs.is_empty() || connection.needs.is_none()).then(|| flow.needs.clone());
        let end = FlowEnd {
            status: Some(ConnectionStatus::Authenticated),
            needs,
            collected,
            credential: name.flatten(),
            ..FlowEnd::default()
        };
        let _ = self.connections.deps().connections.end(&next, &end).await?;
        Ok(Next::Step)
    }

    /// Returns the entered values as the connection's credential, with its name if the connection names none yet.
    async fn collected_credential(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
    ) -> Result<Option<(CollectedCredential, Option<String>)>, StoreError> {
        if !connection.settings.save_credentials {
            return Ok(None);
        }
        let Some(entered) = SiteValues::of(self.entered(flow).unwrap_or_default(), &connection.domain) else {
            return Ok(None);
        };
        let project = self.deps.projects.find(connection.organization, connection.project).await?;
        let Some(project) = project else { return Ok(None) };
        let scope = Scope { project, unscoped: false, organization_wide: false, permissions: Permissions::ALL };
        match (&connection.settings.credential, &connection.credential) {
            // A provider stores its values itself.
            (Some(CredentialRef::Item { .. } | CredentialRef::Auto { .. } | CredentialRef::AutoAny), _) => Ok(None),
            // Values of another site do not belong to the credential.
            (Some(CredentialRef::Named(_)), Some(credential)) if !entered.is_of(&credential.domain) => Ok(None),
            (Some(CredentialRef::Named(_)), Some(credential)) => {
                let changed = self.deps.credentials.stored_in(&scope, credential.id, entered.values);
                Ok(changed.ok().map(|changed| (changed, None)))
            }
            (Some(CredentialRef::Named(name)), None) => {
                let new = self.new_credential(&scope, connection, vec![name.clone()], &entered).await?;
                Ok(new.map(|(new, _)| (new, None)))
            }
            (None, _) => {
                let name = format!("{} {}", connection.domain, connection.profile_name);
                let names = vec![name.clone(), format!("{name} {}", flow.id)];
                let new = self.new_credential(&scope, connection, names, &entered).await?;
                Ok(new.map(|(new, name)| (new, Some(name))))
            }
        }
    }

    /// Returns a new credential with the first free name, or a change of the credential with that name and site; and
    /// the name.
    async fn new_credential(
        &self,
        scope: &Scope,
        connection: &AuthConnection,
        names: Vec<String>,
        entered: &SiteValues,
    ) -> Result<Option<(CollectedCredential, String)>, StoreError> {
        let credentials = &self.deps.credentials;
        for name in names {
            let name: String = name.chars().take(255).collect();
            let which = IdOrName::Name(name.clone());
            let collected = match self.connections.deps().credentials.find(connection.project, &which).await? {
                // An earlier connection created it.
                Some(taken) if taken.domain == entered.domain => {
                    credentials.stored_in(scope, taken.id, entered.values.clone())
                }
                Some(_) => continue,
                None => {
                    let values = Some(entered.values.clone());
                    let new =
                        NewCredential::parse(Some(&name), Some(&entered.domain), values, None, TotpRequest::default());
                    new.map_err(Into::into).and_then(|new| credentials.create_stored(scope, new))
                }
            };
            return Ok(collected.ok().map(|collected| (collected, name)));
        }
        Ok(None)
    }
}

/// The values that a person entered at one site.
struct SiteValues {
    /// A host name of the site.
    domain: String,
    values: BTreeMap<String, SecretString>,
}

impl SiteValues {
    /// Returns the values entered at the site of the password; without a password, at the site of the first value. The
    /// host name is the connection's domain if it belongs to the site, else the host of the page.
    fn of(entered: BTreeMap<String, EnteredValue>, domain: &str) -> Option<Self> {
        let home = entered.get("password").or_else(|| entered.values().next())?.origin.clone();
        let host = Url::parse(&home).ok()?.host_str()?.to_owned();
        let site = Sites::of_addresses([&*home]);
        let same = |origin: &str| origin == home || site.allow(origin, Route::Direct);
        let values = entered.into_iter().filter(|(_, one)| same(&one.origin)).map(|(name, one)| (name, one.value));
        let domain = if site.is_near(domain) { domain.to_owned() } else { host };
        Some(Self { domain, values: values.collect() })
    }

    /// Returns whether the host name belongs to the site.
    fn is_of(&self, domain: &str) -> bool {
        Sites::of_domain(&self.domain).is_near(domain)
    }
}
