//! Whether an unattended login of a connection can succeed, as far as that is known without trying.

use super::{AuthConnection, CredentialRef, FlowRequirement};
use crate::credential::{Credential, Sites};
use crate::text_enum::text_enum;

text_enum! {
    /// Why an unattended login is possible, or why not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ReauthReason {
        /// A credential provider can be asked.
        ExternalCredential => "external_credential",
        /// The credential exists, and the last login asked for nothing.
        NoRequirementsRecorded => "no_requirements_recorded",
        /// The credential holds what the last login asked for.
        RequirementsSatisfiable => "requirements_satisfiable",
        /// No login has succeeded yet.
        NoPriorSuccessfulLogin => "no_prior_successful_login",
        /// The connection has no credential, or a missing one.
        NoCredential => "no_credential",
        /// The credential does not hold what the last login asked for.
        NoViablePlans => "no_viable_plans",
        /// The last login needed a person.
        RequiresExternalAction => "requires_external_action",
        /// The last login needed a code of an authenticator app, and the credential has no secret for it.
        RequiresTotpWithoutSecret => "requires_totp_without_secret",
        /// The last login needed a code by text message.
        RequiresSmsCode => "requires_sms_code",
        /// The last login needed a code by e-mail.
        RequiresEmailCode => "requires_email_code",
    }
}

/// Whether an unattended login is possible, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reauth {
    /// Whether it is possible.
    pub can: bool,
    /// The reason.
    pub reason: ReauthReason,
}

impl Reauth {
    const fn yes(reason: ReauthReason) -> Self {
        Self { can: true, reason }
    }

    const fn no(reason: ReauthReason) -> Self {
        Self { can: false, reason }
    }
}

impl AuthConnection {
    /// Returns whether an unattended login is possible. `external_known`: whether a credential provider that it may ask is in use.
    #[must_use]
    pub fn reauth(&self, external_known: bool) -> Reauth {
        use ReauthReason as R;
        let Some(needs) = &self.needs else { return Reauth::no(R::NoPriorSuccessfulLogin) };
        let known = match (&self.settings.credential, &self.credential) {
            (Some(CredentialRef::Named(_)), Some(credential)) => Some(credential),
            (Some(CredentialRef::Item { .. } | CredentialRef::Auto { .. } | CredentialRef::AutoAny), _)
                if external_known =>
            {
                None
            }
            _ => return Reauth::no(R::NoCredential),
        };
        let is_typed = |need: &FlowRequirement| {
            matches!(need, FlowRequirement::Value(_) | FlowRequirement::Totp | FlowRequirement::OtherCode)
        };
        // The values of a credential are typed at its own site only.
        let at_home = |credential: &Credential| self.hosts().may_reach(&Sites::of_domain(&credential.domain));
        if needs.iter().any(is_typed) && known.is_some_and(|credential| !at_home(credential)) {
            return Reauth::no(R::NoViablePlans);
        }
        if let Some(reason) = needs.iter().find_map(|need| obstacle(need, known)) {
            return Reauth::no(reason);
        }
        match known {
            None => Reauth::yes(R::ExternalCredential),
            Some(_) if needs.is_empty() => Reauth::yes(R::NoRequirementsRecorded),
            Some(_) => Reauth::yes(R::RequirementsSatisfiable),
        }
    }
}

/// Returns why a requirement needs a person. What a provider has is known only when it is asked.
fn obstacle(need: &FlowRequirement, known: Option<&Credential>) -> Option<ReauthReason> {
    match need {
        FlowRequirement::External => Some(ReauthReason::RequiresExternalAction),
        FlowRequirement::SmsCode => Some(ReauthReason::RequiresSmsCode),
        FlowRequirement::EmailCode => Some(ReauthReason::RequiresEmailCode),
        FlowRequirement::Totp | FlowRequirement::OtherCode
            if known.is_some_and(|credential| !credential.has_totp_secret) =>
        {
            Some(ReauthReason::RequiresTotpWithoutSecret)
        }
        FlowRequirement::Value(name)
            if known.is_some_and(|credential| super::submit::value_key(&credential.value_keys, name).is_none()) =>
        {
            Some(ReauthReason::NoViablePlans)
        }
        FlowRequirement::Totp | FlowRequirement::OtherCode | FlowRequirement::Value(_) | FlowRequirement::Choice(_) => {
            None
        }
    }
}
