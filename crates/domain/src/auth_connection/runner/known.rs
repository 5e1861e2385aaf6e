//! What is known to log in with: a credential, a provider's item, what a person gave in this flow.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use time::OffsetDateTime;

use super::FlowRunner;
use crate::auth_connection::submit::value_key;
use crate::auth_connection::{AuthConnection, CredentialRef, ExternalWanted, Flow, FlowError, FlowFailure, Submission};
use crate::credential::{CredentialError, TotpSecret};
use crate::login_page::{Field, FieldKind, MfaKind};
use crate::sealing::SealError;

/// What is known, in clear, for as long as a step takes.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) values: BTreeMap<String, SecretString>,
    totp: Option<TotpSecret>,
    totp_code: Option<SecretString>,
    pub(super) sso_provider: Option<String>,
}

impl Stored {
    /// What is to be typed into the field, if it is known.
    pub(super) fn value(&self, field: &Field, now: OffsetDateTime) -> Option<SecretString> {
        let of_app = matches!(field.mfa, None | Some(MfaKind::Totp));
        match field.kind {
            FieldKind::TotpCode => self.code(now),
            FieldKind::Code if of_app => self.code(now),
            FieldKind::Code | FieldKind::TotpSecret => None,
            FieldKind::Identifier | FieldKind::Password | FieldKind::Text => {
                let keys: Vec<String> = self.values.keys().cloned().collect();
                self.values.get(value_key(&keys, &field.reference)?).cloned()
            }
        }
    }

    pub(super) fn has_totp(&self) -> bool {
        self.totp.is_some() || self.totp_code.is_some()
    }

    fn code(&self, now: OffsetDateTime) -> Option<SecretString> {
        self.totp.as_ref().map(|secret| secret.code(now).code).or_else(|| self.totp_code.clone())
    }

    /// Who logs in.
    pub(super) fn identifier(&self) -> Option<&str> {
        let keys: Vec<String> = self.values.keys().cloned().collect();
        Some(self.values.get(value_key(&keys, "username")?)?.expose_secret())
    }
}

impl FlowRunner {
    /// What is known now. What a provider has is asked anew each time it is needed: it is kept nowhere.
    pub(super) async fn known(&self, connection: &AuthConnection, flow: &Flow) -> Result<Stored, FlowFailure> {
        let mut stored = match &connection.settings.credential {
            Some(CredentialRef::Named(_)) => self.of_credential(connection).await?,
            Some(CredentialRef::Item { provider, path }) => {
                self.of_provider(connection, flow, (Some(provider), ExternalWanted::Path(path))).await?
            }
            Some(CredentialRef::Auto { provider }) => {
                self.of_provider(connection, flow, (Some(provider), ExternalWanted::Domain(&connection.domain))).await?
            }
            Some(CredentialRef::AutoAny) => {
                self.of_provider(connection, flow, (None, ExternalWanted::Domain(&connection.domain))).await?
            }
            None => Stored::default(),
        };
        // What a person gave in this flow is newer.
        stored.values.extend(self.entered(flow)?);
        Ok(stored)
    }

    async fn of_credential(&self, connection: &AuthConnection) -> Result<Stored, FlowFailure> {
        let Some(credential) = &connection.credential else { return Ok(Stored::default()) };
        let opened = self.deps.credentials.open(credential.id).await.map_err(|error| match error {
            CredentialError::Seal(error) => sealed(&error),
            other => FlowFailure::new(FlowError::Internal, other.to_string()),
        })?;
        let opened = opened.unwrap_or_default();
        let sso_provider = credential.sso_provider.clone();
        Ok(Stored { values: opened.values, totp: opened.totp, totp_code: None, sso_provider })
    }

    async fn of_provider(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        (provider, wanted): (Option<&str>, ExternalWanted<'_>),
    ) -> Result<Stored, FlowFailure> {
        let found = self.connections.deps().external.fetch(connection.organization, provider, wanted).await;
        let found = found.map_err(|why| FlowFailure::new(FlowError::ProviderError, why))?;
        let Some(found) = found else {
            if !flow.unattended {
                // Somebody can be asked.
                return Ok(Stored::default());
            }
            let message = match provider {
                Some(provider) => format!("credential provider {provider} has no item that fits"),
                None => "no credential provider has an item that fits".to_owned(),
            };
            return Err(FlowFailure::new(FlowError::CredentialMissing, message));
        };
        Ok(Stored { values: found.values, totp: found.totp, totp_code: found.totp_code, sso_provider: None })
    }

    /// What was typed so far in this flow, by name.
    pub(super) fn entered(&self, flow: &Flow) -> Result<BTreeMap<String, SecretString>, FlowFailure> {
        let Some(bytes) = &flow.entered else { return Ok(BTreeMap::new()) };
        let text = self.open(&Flow::entered_place(flow.id), bytes)?;
        let read: BTreeMap<String, String> = serde_json::from_str(text.expose_secret()).unwrap_or_default();
        Ok(read.into_iter().map(|(name, value)| (name, value.into())).collect())
    }

    /// The same with `more`, sealed.
    pub(super) fn seal_entered(
        &self,
        flow: &Flow,
        more: BTreeMap<String, SecretString>,
    ) -> Result<Option<Vec<u8>>, FlowFailure> {
        let mut all = self.entered(flow)?;
        all.extend(more);
        if all.is_empty() {
            return Ok(None);
        }
        let plain: BTreeMap<&str, &str> =
            all.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        let text = serde_json::json!(plain).to_string();
        let sealer = &self.connections.deps().sealer;
        sealer.seal(&Flow::entered_place(flow.id), text.as_bytes()).map(Some).map_err(|error| sealed(&error))
    }

    /// What was submitted and not yet typed.
    pub(super) fn submission(&self, flow: &Flow) -> Result<Option<Submission>, FlowFailure> {
        let Some(bytes) = &flow.submission else { return Ok(None) };
        let text = self.open(&Flow::submission_place(flow.id), bytes)?;
        let read: serde_json::Value = serde_json::from_str(text.expose_secret()).unwrap_or_default();
        let values = read.get("values").and_then(serde_json::Value::as_object);
        let value = |(key, value): (&String, &serde_json::Value)| Some((key.clone(), value.as_str()?.into()));
        let values = values.map(|values| values.iter().filter_map(value).collect()).unwrap_or_default();
        let choice = read.get("choice").and_then(serde_json::Value::as_str).map(str::to_owned);
        Ok(Some(Submission { values, choice }))
    }

    fn open(&self, place: &str, bytes: &[u8]) -> Result<SecretString, FlowFailure> {
        let clear = self.connections.deps().sealer.open(place, bytes).map_err(|error| sealed(&error))?;
        let text = std::str::from_utf8(clear.expose_secret()).map_err(|_| sealed(&SealError::Damaged))?;
        Ok(text.into())
    }
}

fn sealed(error: &SealError) -> FlowFailure {
    FlowFailure::new(FlowError::Internal, format!("what is stored for the login cannot be used: {error}"))
}
