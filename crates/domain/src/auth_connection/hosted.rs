//! What the hosted page needs: its code is used once, and then a key of its own in a cookie opens it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::service::not_found;
use super::{AuthConnection, AuthConnectionError, AuthConnections, Flow, SubmitInput};
use crate::clock::Entropy;
use crate::ids::{AuthConnectionId, ProjectId};
use crate::store_error::StoreError;

/// Opens the hosted page of one flow, from a cookie.
#[derive(Clone, Debug)]
pub struct PageKey(pub SecretString);

/// The hosted page was not opened.
#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    /// There is no such connection, or the code or key is not its latest flow's. Says which to nobody.
    #[error("this link opens nothing")]
    NotFound,
    /// The code was used before.
    #[error("this link was opened before")]
    Used,
    /// The flow is over, or was replaced by a later one.
    #[error("this login is over")]
    Over,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is stored cannot be opened.
    #[error(transparent)]
    Seal(#[from] crate::sealing::SealError),
}

/// What the hosted page shows.
#[derive(Clone, Debug)]
pub struct HostedFlow {
    /// The connection, with its flow.
    pub connection: AuthConnection,
    /// The flow as it is now, ended or not.
    pub flow: Flow,
}

/// Something random to put into an address or a cookie: 43 characters.
pub(super) fn mint(entropy: &dyn Entropy) -> SecretString {
    URL_SAFE_NO_PAD.encode(entropy.secret_bytes()).into()
}

pub(super) fn hash(text: &SecretString) -> [u8; 32] {
    Sha256::digest(text.expose_secret().as_bytes()).into()
}

impl AuthConnections {
    /// Whether a code would open the hosted page now: the project of its connection. Uses nothing up: links are also fetched by programs that only look at them.
    ///
    /// # Errors
    /// See [`HandoffError`].
    pub async fn would_open(&self, id: AuthConnectionId, code: &SecretString) -> Result<ProjectId, HandoffError> {
        let hosted = self.hosted_flow(id).await?;
        self.check_code(&hosted.flow, code)?;
        Ok(hosted.connection.project)
    }

    /// Uses the code of a hosted page, which works once: the key that opens the page from now on, as long as its flow goes on.
    ///
    /// # Errors
    /// See [`HandoffError`].
    pub async fn open_hosted(&self, id: AuthConnectionId, code: &SecretString) -> Result<PageKey, HandoffError> {
        // A lost race means that the flow moved; it is looked at again. Its moves are bounded.
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

    /// The flow that goes on and whose unused code this is.
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

    /// What the holder of a hosted page's key sees: also an ended flow, until a later one takes its place.
    ///
    /// # Errors
    /// [`HandoffError::NotFound`]; the store's failure.
    pub async fn hosted(&self, id: AuthConnectionId, key: &SecretString) -> Result<HostedFlow, HandoffError> {
        let hosted = self.hosted_flow(id).await?;
        match &hosted.flow.page_key {
            Some(kept) if bool::from(kept.ct_eq(&hash(key))) => Ok(hosted),
            _ => Err(HandoffError::NotFound),
        }
    }

    /// Submits for the holder of a hosted page's key.
    ///
    /// # Errors
    /// See [`AuthConnectionError`]; one that holds no key is told that there is nothing.
    pub async fn submit_hosted(
        &self,
        id: AuthConnectionId,
        key: &SecretString,
        input: SubmitInput,
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
