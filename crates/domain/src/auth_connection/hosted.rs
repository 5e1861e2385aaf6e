//! The hosted page of a flow: a one-time code opens it, and then a key in a cookie.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::service::not_found;
use super::{AuthConnection, AuthConnectionError, AuthConnections, Flow, SubmitRequest};
use crate::clock::Entropy;
use crate::ids::{AuthConnectionId, ProjectId};
use crate::store_error::StoreError;

/// The key of the hosted page of one flow, for a cookie.
#[derive(Clone, Debug)]
pub struct PageKey(pub SecretString);

/// The error of opening a hosted page.
#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    /// There is no such connection, or the code or key does not belong to its latest flow. The error does not reveal
    /// which.
    #[error("this link opens nothing")]
    NotFound,
    /// The code was used before.
    #[error("this link was opened before")]
    Used,
    /// The flow has ended, or a later one has replaced it.
    #[error("this login is over")]
    Over,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored secret cannot be opened.
    #[error(transparent)]
    Seal(#[from] crate::sealing::SealError),
}

/// The content of the hosted page.
#[derive(Clone, Debug)]
pub struct HostedFlow {
    /// The connection, with its flow.
    pub connection: AuthConnection,
    /// The flow as it is now, ended or not.
    pub flow: Flow,
}

/// Returns a random text of 43 characters for a URL or a cookie.
pub(super) fn mint(entropy: &dyn Entropy) -> SecretString {
    URL_SAFE_NO_PAD.encode(entropy.secret_bytes()).into()
}

pub(super) fn hash(text: &SecretString) -> [u8; 32] {
    Sha256::digest(text.expose_secret().as_bytes()).into()
}

impl AuthConnections {
    /// Returns the project of the connection if the code would open the hosted page now. The code stays unused, because
    /// programs also fetch links to preview them.
    ///
    /// # Errors
    /// See [`HandoffError`].
    pub async fn would_open(&self, id: AuthConnectionId, code: &SecretString) -> Result<ProjectId, HandoffError> {
        let hosted = self.hosted_flow(id).await?;
        self.check_code(&hosted.flow, code)?;
        Ok(hosted.connection.project)
    }

    /// Uses the one-time code of a hosted page, and returns the key that opens the page from now on, while its flow is
    /// running.
    ///
    /// # Errors
    /// See [`HandoffError`].
    pub async fn open_hosted(&self, id: AuthConnectionId, code: &SecretString) -> Result<PageKey, HandoffError> {
        // A lost race means that the flow changed, so it is read again. The number of its changes is bounded.
        loop {
            let flow = self.handed_off(id, code).await?;
            let key = mint(&*self.deps().entropy);
            let now = self.deps().clock.now();
            let opened = Flow { handoff_used_at: Some(now), page_key: Some(hash(&key)), ..flow };
            if self.deps().connections.put(&opened).await? {
                return Ok(PageKey(key));
            }
        }
    }

    /// Returns the running flow with this unused code.
    async fn handed_off(&self, id: AuthConnectionId, code: &SecretString) -> Result<Flow, HandoffError> {
        let flow = self.hosted_flow(id).await?.flow;
        self.check_code(&flow, code)?;
        Ok(flow)
    }

    fn check_code(&self, flow: &Flow, code: &SecretString) -> Result<(), HandoffError> {
        let Some(sealed) = &flow.handoff else { return Err(HandoffError::NotFound) };
        let wanted = self.deps().sealer.open(&Flow::handoff_place(flow.id), sealed)?;
        let wanted: [u8; 32] = Sha256::digest(wanted.expose_secret()).into();
        if !bool::from(wanted.ct_eq(&hash(code))) {
            return Err(HandoffError::NotFound);
        }
        if flow.handoff_used_at.is_some() {
            return Err(HandoffError::Used);
        }
        if flow.is_running(self.deps().clock.now()) { Ok(()) } else { Err(HandoffError::Over) }
    }

    /// Returns the content of the hosted page for the holder of its key, also of an ended flow that is not replaced
    /// yet.
    ///
    /// # Errors
    /// [`HandoffError::NotFound`]; the error of the store.
    pub async fn hosted(&self, id: AuthConnectionId, key: &SecretString) -> Result<HostedFlow, HandoffError> {
        let hosted = self.hosted_flow(id).await?;
        match &hosted.flow.page_key {
            Some(stored) if bool::from(stored.ct_eq(&hash(key))) => Ok(hosted),
            _ => Err(HandoffError::NotFound),
        }
    }

    /// Submits values for the holder of a hosted page's key.
    ///
    /// # Errors
    /// See [`AuthConnectionError`]; a wrong key gives the same error as a missing connection.
    pub async fn submit_hosted(
        &self,
        id: AuthConnectionId,
        key: &SecretString,
        input: SubmitRequest,
    ) -> Result<(), AuthConnectionError> {
        let hosted = self.hosted(id, key).await.map_err(|error| match error {
            HandoffError::Store(error) => AuthConnectionError::Store(error),
            HandoffError::Seal(error) => AuthConnectionError::Seal(error),
            HandoffError::NotFound | HandoffError::Used | HandoffError::Over => not_found(&id.to_string()).into(),
        })?;
        self.submit_to(hosted.connection, input).await
    }

    async fn hosted_flow(&self, id: AuthConnectionId) -> Result<HostedFlow, HandoffError> {
        let connection = self.deps().connections.any(id).await?.ok_or(HandoffError::NotFound)?;
        let flow = connection.flow.clone().ok_or(HandoffError::NotFound)?;
        Ok(HostedFlow { connection, flow: flow.as_of(self.deps().clock.now()) })
    }
}
