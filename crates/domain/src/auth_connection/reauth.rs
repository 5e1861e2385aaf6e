//! The prediction whether an unattended login of a connection can succeed.

use super::{AuthConnection, CredentialRef, FlowRequirement};
use crate::credential::{Credential, Sites};
use crate::text_enum::text_enum;

text_enum! {
    /// The reason why an unattended login is possible, or not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ReauthReason {
        /// A credential provider may have the values.
        ExternalCredential => "external_credential",
        /// The credential exists, and the last login had no requirements.
        NoRequirementsRecorded => "no_requirements_recorded",
        /// The credential satisfies the requirements of the last login.
        RequirementsSatisfiable => "requirements_satisfiable",
        /// No login has succeeded yet.
        NoPriorSuccessfulLogin => "no_prior_successful_login",
        /// The connection has no credential, or one that does not exist.
        NoCredential => "no_credential",
        /// The credential does not satisfy the requirements of the last login.
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

/// The prediction of an unattended login, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reauth {
    /// True if an unattended login is possible.
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
    /// Predicts an unattended login. `external_known` is true if a credential provider that it may use is enabled.
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

/// Returns the reason why a requirement needs a person. The unknown values of a provider count as present.
fn obstacle(need: &FlowRequirement, known: Option<&Credential>) -> Option<ReauthReason> {
    match need {
        FlowRequirement::External => Some(ReauthReason::RequiresExternalAction),
        FlowRequirement::SmsCode => Some(ReauthReason::RequiresSmsCode),
        FlowRequirement::EmailCode => Some(ReauthReason::RequiresEmailCode),
        FlowRequirement::Totp | FlowRequirement::OtherCode
            if known.is_some_and(|credential| credential.totp.is_none()) =>
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
