//! Whether a connection could log in by itself, as far as can be known without trying.

use super::{AuthConnection, CredentialRef, FlowRequirement};
use crate::credential::{Credential, Sites};
use crate::text_enum::text_enum;

text_enum! {
    /// Why a connection can log in by itself, or why not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ReauthReason {
        /// A credential provider is asked.
        ExternalCredential => "external_credential",
        /// There is a credential, and the last login asked for nothing.
        NoRequirementsRecorded => "no_requirements_recorded",
        /// The credential holds what the last login asked for.
        RequirementsSatisfiable => "requirements_satisfiable",
        /// It was never logged in.
        NoPriorSuccessfulLogin => "no_prior_successful_login",
        /// It names no credential, or one that is not there.
        NoCredential => "no_credential",
        /// The credential does not hold what the last login asked for.
        NoViablePlans => "no_viable_plans",
        /// The last login needed somebody.
        RequiresExternalAction => "requires_external_action",
        /// The last login needed a code of an app, and there is no secret for it.
        RequiresTotpWithoutSecret => "requires_totp_without_secret",
        /// The last login needed a code by text message.
        RequiresSmsCode => "requires_sms_code",
        /// The last login needed a code by e-mail.
        RequiresEmailCode => "requires_email_code",
    }
}

/// Whether a connection could log in by itself, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reauth {
    /// Whether.
    pub can: bool,
    /// Why.
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
    /// Whether it could log in by itself. `external_known`: whether a credential provider that it may ask is there and in use.
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
        // Nothing of a credential of a site that no login comes to is ever typed.
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

/// What `need` asks for that nobody but a person has. What a provider holds is seen only when it is asked.
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
