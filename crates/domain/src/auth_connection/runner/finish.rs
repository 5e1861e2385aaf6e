//! The end of a login that succeeded: its profile is saved, what it was given is kept, and only then it is a success.

use std::collections::BTreeMap;

use secrecy::SecretString;
use time::Duration;

use super::session::ended;
use super::{FlowRunner, Next};
use crate::access::Scope;
use crate::auth_connection::{
    AuthConnection, ConnectionStatus, CredentialRef, Flow, FlowEnd, FlowError, FlowEvent, FlowFailure,
};
use crate::credential::{CreateCredential, CredentialError, UpdateCredential};
use crate::session::SessionState;
use crate::store_error::StoreError;

/// For how long it is tried to save a profile after a login's own time is over.
const TRIED_FOR: Duration = Duration::minutes(5);

impl FlowRunner {
    /// One step of a login that is logged in.
    pub(super) async fn finish(&self, connection: &AuthConnection, flow: Flow) -> Result<Next, StoreError> {
        let Some(session) = self.connections.deps().sessions.find(flow.session).await? else {
            return self.fail(connection, &flow, ended()).await;
        };
        match session.state {
            SessionState::Active if !flow.saving => {
                if self.connections.deps().connections.let_save(&flow).await? {
                    let _ = self.connections.deps().connections.put(&Flow { saving: true, ..flow }).await?;
                }
                Ok(Next::Step)
            }
            SessionState::Active | SessionState::Starting => {
                self.end_session(&flow).await?;
                Ok(Next::Step)
            }
            SessionState::Ended(_) if !flow.saving => self.fail(connection, &flow, ended()).await,
            // The right to save goes with the saving.
            SessionState::Ended(_) if session.shape.profile.is_some_and(|profile| !profile.save_changes) => {
                self.succeed(connection, &flow).await
            }
            SessionState::Ended(_) if self.now() < flow.expires_at + TRIED_FOR => {
                // The node's housekeeping tries again.
                Ok(Next::Wait(self.now() + Duration::seconds(1)))
            }
            SessionState::Ended(_) => {
                let failure = FlowFailure::new(FlowError::Internal, "the profile could not be saved");
                self.fail(connection, &flow, failure).await
            }
        }
    }

    async fn succeed(&self, connection: &AuthConnection, flow: &Flow) -> Result<Next, StoreError> {
        let Ok(next) = flow.on(FlowEvent::Completed, self.now()) else { return Ok(Next::Step) };
        let credential = self.keep(connection, flow).await?;
        let end = FlowEnd {
            status: Some(ConnectionStatus::Authenticated),
            needs: Some(flow.needs.clone()),
            credential,
            checked_at: None,
        };
        let _ = self.connections.deps().connections.end(&next, &end).await?;
        Ok(Next::Step)
    }

    /// Keeps what a person gave as the connection's credential; its name, if the connection names none yet. That it cannot be kept does not
    /// undo the login.
    async fn keep(&self, connection: &AuthConnection, flow: &Flow) -> Result<Option<String>, StoreError> {
        let entered = self.entered(flow).unwrap_or_default();
        if !connection.settings.save_credentials || entered.is_empty() {
            return Ok(None);
        }
        let project = self.deps.projects.find(connection.organization, connection.project).await?;
        let Some(project) = project else { return Ok(None) };
        let scope = Scope { project, unscoped: false };
        match (&connection.settings.credential, &connection.credential) {
            // Where values come from a provider, they are kept there.
            (Some(CredentialRef::Item { .. } | CredentialRef::Auto { .. }), _) => Ok(None),
            (Some(CredentialRef::Named(_)), Some(credential)) => {
                let change = UpdateCredential { values: Some(entered), ..UpdateCredential::default() };
                stored(self.deps.credentials.update(&scope, &credential.id.to_string(), change).await.map(|_| ()))?;
                Ok(None)
            }
            (Some(CredentialRef::Named(name)), None) => {
                self.make_credential(&scope, connection, vec![name.clone()], &entered).await?;
                Ok(None)
            }
            (None, _) => {
                let name = format!("{} {}", connection.domain, connection.profile_name);
                let names = vec![name.clone(), format!("{name} {}", flow.id)];
                self.make_credential(&scope, connection, names, &entered).await
            }
        }
    }

    /// Makes a credential by the first of the names that is free, or changes that of the same site; its name.
    async fn make_credential(
        &self,
        scope: &Scope,
        connection: &AuthConnection,
        names: Vec<String>,
        values: &BTreeMap<String, SecretString>,
    ) -> Result<Option<String>, StoreError> {
        for name in names {
            let name: String = name.chars().take(255).collect();
            let new = CreateCredential {
                name: Some(name.clone()),
                domain: Some(connection.domain.clone()),
                values: Some(values.clone()),
                ..CreateCredential::default()
            };
            match self.deps.credentials.create(scope, new).await.map(|_| ()) {
                Err(CredentialError::NameTaken(_)) => {
                    // Kept just before this server was killed, or by a connection of before.
                    let change = UpdateCredential { values: Some(values.clone()), ..UpdateCredential::default() };
                    let taken = self.deps.credentials.get(scope, &name).await;
                    if taken.is_ok_and(|taken| taken.domain == connection.domain) {
                        return stored(self.deps.credentials.update(scope, &name, change).await.map(|_| ()))
                            .map(|()| Some(name));
                    }
                }
                Ok(()) => return Ok(Some(name)),
                other => return stored(other).map(|()| None),
            }
        }
        Ok(None)
    }
}

/// Only the store's failure is worth trying again.
fn stored(done: Result<(), CredentialError>) -> Result<(), StoreError> {
    match done {
        Err(CredentialError::Store(error)) => Err(error),
        _ => Ok(()),
    }
}
