//! Tests of whether an auth connection can log in unattended, and of the reasons.

use casement_domain::auth_connection::{
    AuthConnection, CredentialRef, FlowRequirement, Reauth, ReauthReason, Settings,
};
use casement_domain::credential::{Credential, TotpParameters};
use casement_domain::login_page::HostPattern;
use casement_domain::name::LabelName;
use casement_domain::testing::{NOON, auth_connection, project_id};
use casement_domain::{CredentialId, ProfileId};
use pretty_assertions::assert_eq;
use ulid::Ulid;

fn credential(keys: &[&str], totp: bool) -> Credential {
    Credential {
        id: CredentialId::from_ulid(Ulid::from_parts(13, 1)),
        project: project_id(),
        name: LabelName::parse("shop").expect("a name"),
        domain: "d1.example".to_owned(),
        sso_provider: None,
        value_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        totp: totp.then(TotpParameters::default),
        created_at: NOON,
        updated_at: NOON,
    }
}

fn connection(
    needs: Option<&[FlowRequirement]>,
    named: Option<CredentialRef>,
    found: Option<Credential>,
) -> AuthConnection {
    AuthConnection {
        needs: needs.map(<[FlowRequirement]>::to_vec),
        settings: Settings { credential: named, ..Settings::default() },
        credential: found,
        ..auth_connection(1, ProfileId::from_ulid(Ulid::from_parts(11, 1)))
    }
}

#[test]
fn whether_it_can_log_in_by_itself_is_what_would_happen() {
    use ReauthReason as R;
    let named = || Some(CredentialRef::Named("shop".to_owned()));
    let value = |name: &str| FlowRequirement::Value(name.to_owned());
    let both = [value("username"), value("password")];
    let keys = ["email", "password"];
    let with = |need: FlowRequirement| [&both[..], &[need]].concat();
    let stored = |needs: &[FlowRequirement], totp| connection(Some(needs), named(), Some(credential(&keys, totp)));
    for (connection, can, reason) in [
        (connection(None, named(), Some(credential(&keys, true))), false, R::NoPriorSuccessfulLogin),
        (connection(Some(&both), None, None), false, R::NoCredential),
        (connection(Some(&both), named(), None), false, R::NoCredential),
        (stored(&both, false), true, R::RequirementsSatisfiable),
        (stored(&[], false), true, R::NoRequirementsRecorded),
        (stored(&with(value("company")), false), false, R::NoViablePlans),
        (stored(&with(FlowRequirement::Totp), true), true, R::RequirementsSatisfiable),
        (stored(&with(FlowRequirement::Totp), false), false, R::RequiresTotpWithoutSecret),
        (stored(&with(FlowRequirement::OtherCode), false), false, R::RequiresTotpWithoutSecret),
        (stored(&with(FlowRequirement::SmsCode), true), false, R::RequiresSmsCode),
        (stored(&with(FlowRequirement::EmailCode), true), false, R::RequiresEmailCode),
        (stored(&with(FlowRequirement::External), true), false, R::RequiresExternalAction),
        (stored(&with(FlowRequirement::Choice("Password".to_owned())), false), true, R::RequirementsSatisfiable),
    ] {
        assert_eq!(connection.reauth(false), Reauth { can, reason }, "{:?}", connection.needs);
    }
}

#[test]
fn a_provider_is_as_good_as_it_is_there() {
    let auto = || Some(CredentialRef::Auto { provider: "vault".to_owned() });
    let item = || Some(CredentialRef::Item { provider: "vault".to_owned(), path: "a/b".to_owned() });
    let needs = [FlowRequirement::Value("username".to_owned()), FlowRequirement::Totp];
    for named in [auto(), item(), Some(CredentialRef::AutoAny)] {
        let known = connection(Some(&needs), named, None);
        assert_eq!(known.reauth(true), Reauth { can: true, reason: ReauthReason::ExternalCredential });
        assert_eq!(known.reauth(false), Reauth { can: false, reason: ReauthReason::NoCredential });
    }
    let sms = connection(Some(&[FlowRequirement::SmsCode]), auto(), None);
    assert_eq!(sms.reauth(true), Reauth { can: false, reason: ReauthReason::RequiresSmsCode });
}

#[test]
fn needs_are_read_as_they_were_stored() {
    let all = [
        FlowRequirement::Value("a:b".to_owned()),
        FlowRequirement::Totp,
        FlowRequirement::SmsCode,
        FlowRequirement::EmailCode,
        FlowRequirement::OtherCode,
        FlowRequirement::External,
        FlowRequirement::Choice(String::new()),
    ];
    for need in all {
        assert_eq!(FlowRequirement::parse(&need.to_text()), Some(need));
    }
    assert_eq!(FlowRequirement::parse("of a later version"), None);
}

#[test]
fn a_credential_of_a_site_that_no_login_comes_to_does_not_log_in_by_itself() {
    let needs = [FlowRequirement::Value("password".to_owned())];
    for (domain, allowed, can) in [
        ("www.d1.example", None, true),
        ("other.example", None, false),
        ("other.example", Some("login.other.example"), true),
        ("a.other.example", Some("*.other.example"), true),
        ("other.example", Some("*.example"), true),
        ("accounts.google.com", None, true),
        ("evil.github.io", Some("me.github.io"), false),
    ] {
        let credential = Credential { domain: domain.to_owned(), ..credential(&["password"], false) };
        let mut connection = connection(Some(&needs), Some(CredentialRef::Named("shop".to_owned())), Some(credential));
        let patterns = allowed.into_iter().map(|text| HostPattern::parse(text).expect("a pattern"));
        connection.settings.allowed_domains = patterns.collect();
        assert_eq!(connection.reauth(false).can, can, "{domain} with {allowed:?}");
    }
}
