//! The use cases of credentials.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::input::too_many;
use super::{
    Credential, CredentialChange, CredentialFilter, CredentialRepository, CredentialSecret, CredentialStored,
    CredentialUpdate, CredentialUpdated, NewCredential, PlainSecrets, SealedSecrets, SealedTotp, TotpCode,
    TotpParameters, TotpRequest, TotpSecret,
};
use crate::access::Scope;
use crate::auth_connection::CollectedCredential;
use crate::clock::{Clock, IdSource};
use crate::error::{NameTaken, NotFound, SpecificError, UseCaseError};
use crate::field::InvalidInput;
use crate::ids::CredentialId;
use crate::page::{Listed, Page};
use crate::sealing::{Resealed, SealError, Sealer};
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// The error of a use case of credentials.
pub type CredentialError = UseCaseError<NoTotpSecret>;

/// The error of a credential without a secret of one-time codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("credential {0} has no TOTP secret")]
pub struct NoTotpSecret(pub String);

impl SpecificError for NoTotpSecret {}

/// The dependencies of the use cases of credentials.
#[derive(Clone)]
pub struct CredentialDeps {
    /// The repository of credentials.
    pub credentials: Arc<dyn CredentialRepository>,
    /// Seals the secrets of credentials.
    pub sealer: Arc<dyn Sealer>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// The maximum number of credentials of a project.
    pub max: u32,
}

/// The use cases of credentials.
#[derive(Clone)]
pub struct Credentials {
    deps: CredentialDeps,
}

impl Credentials {
    /// The default maximum number of credentials of a project.
    pub const DEFAULT_MAX: u32 = 1000;

    /// Creates the use cases.
    #[must_use]
    pub fn new(deps: CredentialDeps) -> Self {
        Self { deps }
    }

    /// Stores a new credential; returns it with its current one-time code, if it has a secret of codes.
    ///
    /// # Errors
    /// See [`CredentialError`]; then nothing is stored.
    pub async fn create(
        &self,
        scope: &Scope,
        new: NewCredential,
    ) -> Result<(Credential, Option<TotpCode>), CredentialError> {
        let (credential, secrets, totp) = self.draft(scope, new)?;
        match self.deps.credentials.create(&credential, &secrets, self.deps.max).await? {
            CredentialStored::Yes => {
                let now = credential.created_at;
                Ok((credential, totp.map(|secret| secret.code(now))))
            }
            CredentialStored::NameTaken => Err(name_taken(credential.name.as_str()).into()),
            CredentialStored::LimitExceeded(limit) => Err(limit.into()),
            CredentialStored::ProjectGone => Err(CredentialError::ProjectDeleted),
        }
    }

    /// Creates a credential without storing it; returns it with its secrets.
    fn draft(
        &self,
        scope: &Scope,
        new: NewCredential,
    ) -> Result<(Credential, SealedSecrets, Option<TotpSecret>), CredentialError> {
        scope.writable()?;
        let id = CredentialId::mint(self.deps.ids.as_ref());
        let now = self.deps.clock.now();
        let totp = new.totp.map(|text| text.secret(TotpParameters::default()));
        let secrets = SealedSecrets {
            values: self.seal_values(id, &new.values)?,
            totp: totp.as_ref().map(|secret| self.seal_totp(id, secret)).transpose()?,
        };
        let credential = Credential {
            id,
            project: scope.project_id(),
            name: new.name,
            domain: new.domain,
            sso_provider: new.sso_provider,
            value_keys: secrets.values.keys().cloned().collect(),
            totp: totp.as_ref().map(TotpSecret::parameters),
            created_at: now,
            updated_at: now,
        };
        Ok((credential, secrets, totp))
    }

    /// Returns the values of a login as a new credential, which is stored with the end of the login.
    pub(crate) fn create_stored(
        &self,
        scope: &Scope,
        new: NewCredential,
    ) -> Result<CollectedCredential, CredentialError> {
        let (credential, secrets, _) = self.draft(scope, new)?;
        Ok(CollectedCredential::New { credential: Box::new(credential), secrets, max: self.deps.max })
    }

    /// Returns the values of a login as a change of a credential, which is stored with the end of the login.
    pub(crate) fn stored_in(
        &self,
        scope: &Scope,
        id: CredentialId,
        values: BTreeMap<String, SecretString>,
    ) -> Result<CollectedCredential, CredentialError> {
        scope.writable()?;
        let update = CredentialUpdate::parse(None, None, TotpRequest::default(), Some(values), None)?;
        let values = self.seal_values(id, &update.values)?;
        Ok(CollectedCredential::Changed { id, change: CredentialChange { values, ..CredentialChange::default() } })
    }

    /// Returns the project's credential with this id or name.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn get(&self, scope: &Scope, which: &str) -> Result<Credential, CredentialError> {
        let found = self.deps.credentials.find(scope.project_id(), &IdOrName::parse(which)).await?;
        found.ok_or_else(|| not_found(which).into())
    }

    /// Returns the project's credentials, newest first.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: &CredentialFilter,
        page: Page,
    ) -> Result<Listed<Credential>, StoreError> {
        self.deps.credentials.list(scope.project_id(), filter, page).await
    }

    /// Changes a credential; returns it with its current one-time code, if its secret of codes was set.
    ///
    /// # Errors
    /// See [`CredentialError`]; then nothing is changed.
    pub async fn update(
        &self,
        scope: &Scope,
        which: &str,
        update: CredentialUpdate,
    ) -> Result<(Credential, Option<TotpCode>), CredentialError> {
        scope.writable()?;
        let Credential { id, totp: present, .. } = self.get(scope, which).await?;
        let now = self.deps.clock.now();
        // A new secret alone keeps the parameters of the present one; a URI is complete.
        let totp = update.totp.map(|text| {
            let text = text?;
            let base = present.filter(|_| !text.is_uri).unwrap_or_default();
            Some(text.secret(base))
        });
        let seal = |secret: &TotpSecret| self.seal_totp(id, secret);
        let change = CredentialChange {
            sso_provider: update.sso_provider,
            remove: update.remove,
            values: self.seal_values(id, &update.values)?,
            totp: totp.as_ref().map(|secret| secret.as_ref().map(seal).transpose()).transpose()?,
            name: update.name,
        };
        match self.deps.credentials.update(id, &change, now).await? {
            CredentialUpdated::Yes(credential) => Ok((*credential, totp.flatten().map(|secret| secret.code(now)))),
            CredentialUpdated::NameTaken => {
                Err(name_taken(change.name.as_ref().map(|name| name.as_str()).unwrap_or_default()).into())
            }
            CredentialUpdated::TooManyValues => Err(InvalidInput::of("values", too_many()).into()),
            CredentialUpdated::NotFound => Err(not_found(which).into()),
        }
    }

    /// Deletes a credential with its secrets.
    ///
    /// # Errors
    /// [`NotFound`]; the error of the store.
    pub async fn delete(&self, scope: &Scope, which: &str) -> Result<(), CredentialError> {
        let Credential { id, .. } = self.get(scope, which).await?;
        let gone = self.deps.credentials.delete(id).await?;
        gone.then_some(()).ok_or_else(|| not_found(which).into())
    }

    /// Returns the current one-time code.
    ///
    /// # Errors
    /// See [`CredentialError`].
    pub async fn totp_code(&self, scope: &Scope, which: &str) -> Result<TotpCode, CredentialError> {
        let Credential { id, .. } = self.get(scope, which).await?;
        let secrets = self.deps.credentials.secrets(id).await?;
        let secrets = secrets.ok_or_else(|| not_found(which))?;
        let sealed = secrets.totp.ok_or_else(|| NoTotpSecret(which.to_owned()))?;
        Ok(self.open_totp(id, &sealed)?.code(self.deps.clock.now()))
    }

    /// Returns the decrypted secrets of a credential, for a login that types them; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns the error of the store, or of a secret that cannot be opened.
    pub async fn open(&self, id: CredentialId) -> Result<Option<PlainSecrets>, CredentialError> {
        let Some(secrets) = self.deps.credentials.secrets(id).await? else { return Ok(None) };
        let mut values = BTreeMap::new();
        for (name, sealed) in &secrets.values {
            let place = Credential::place(id, &CredentialSecret::Value(name.clone()));
            let clear = self.deps.sealer.open(&place, sealed)?;
            let text = std::str::from_utf8(clear.expose_secret()).map_err(|_| SealError::Damaged)?;
            values.insert(name.clone(), SecretString::from(text));
        }
        let totp = secrets.totp.as_ref().map(|sealed| self.open_totp(id, sealed)).transpose()?;
        Ok(Some(PlainSecrets { values, totp }))
    }

    /// Reseals secrets that are not sealed with the current master key. Secrets that cannot be opened are unchanged.
    ///
    /// # Errors
    /// See [`CredentialError`]; secrets that were resealed before the error stay resealed.
    pub async fn reseal(&self) -> Result<Resealed, CredentialError> {
        let (sealer, mut resealed) = (&*self.deps.sealer, Resealed::default());
        loop {
            let processed = resealed.processed();
            for one in &self.deps.credentials.sealed_with_other_key(sealer.current()?, resealed.batch()).await? {
                if let Some(next) =
                    resealed.reseal_value(sealer, Credential::place(one.credential, &one.secret), &one.sealed)?
                {
                    self.deps.credentials.reseal(one, &next).await?;
                    resealed.done += 1;
                }
            }
            if resealed.processed() == processed {
                return Ok(resealed);
            }
        }
    }

    fn seal_values(
        &self,
        id: CredentialId,
        values: &BTreeMap<String, SecretString>,
    ) -> Result<BTreeMap<String, Vec<u8>>, SealError> {
        let seal = |(name, value): (&String, &SecretString)| {
            let place = Credential::place(id, &CredentialSecret::Value(name.clone()));
            Ok((name.clone(), self.deps.sealer.seal(&place, value.expose_secret().as_bytes())?))
        };
        values.iter().map(seal).collect()
    }

    fn seal_totp(&self, id: CredentialId, secret: &TotpSecret) -> Result<SealedTotp, SealError> {
        let sealed = self.deps.sealer.seal(&Credential::place(id, &CredentialSecret::Totp), secret.bytes())?;
        Ok(SealedTotp { sealed, parameters: secret.parameters() })
    }

    fn open_totp(&self, id: CredentialId, totp: &SealedTotp) -> Result<TotpSecret, SealError> {
        let clear = self.deps.sealer.open(&Credential::place(id, &CredentialSecret::Totp), &totp.sealed)?;
        Ok(TotpSecret::new(clear, totp.parameters))
    }
}

fn not_found(which: &str) -> NotFound {
    NotFound::new("credential", which)
}

fn name_taken(name: &str) -> NameTaken {
    NameTaken::new("a credential", name)
}
