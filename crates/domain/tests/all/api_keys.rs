//! Tests of API keys: their text, their stored hash, and authentication.

use std::sync::Arc;

use casement_domain::api_key::{
    ApiKey, ApiKeys, AuthenticateError, Caller, CreatedKey, KeyRequest, KeySecret, KeyWithHash, MockApiKeyRepository,
    masked,
};
use casement_domain::field::FieldCode;
use casement_domain::permission::Permissions;
use casement_domain::testing::{CountingIds, FixedClock, NOON, organization_id, project, project_id};
use casement_domain::{ApiKeyId, NotFound, UseCaseError, UserId};
use pretty_assertions::assert_eq;
use time::Duration;

use crate::support::{nth, store_down};

fn keys(repository: MockApiKeyRepository) -> ApiKeys {
    let ids = Arc::new(CountingIds::default());
    ApiKeys::new(Arc::new(repository), Arc::new(FixedClock::default()), ids.clone(), ids)
}

fn owner() -> UserId {
    UserId::from_ulid(nth(7))
}

fn draft() -> CreatedKey {
    let request = KeyRequest {
        name: Some("ci".to_owned()),
        days_to_expire: Some(30),
        project: Some(project_id()),
        ..KeyRequest::default()
    };
    keys(MockApiKeyRepository::new()).draft(organization_id(), owner(), request).expect("a draft")
}

/// Returns the use cases with a store that has the drafted key after `change`.
fn with(change: impl FnOnce(&mut KeyWithHash)) -> ApiKeys {
    let mut stored = KeyWithHash { key: draft().key, project_deleted: false, home: Some(project()) };
    change(&mut stored);
    let mut repository = MockApiKeyRepository::new();
    repository.expect_find().returning(move |id| Ok((id == stored.key.id).then(|| stored.clone())));
    keys(repository)
}

#[tokio::test]
async fn the_text_of_a_key_opens_what_the_key_is_for() {
    let CreatedKey { key, secret } = draft();
    let caller = with(|_| {}).authenticate(&secret.key_text(key.id)).await.expect("believed");
    assert_eq!(
        caller,
        Caller {
            key: key.id,
            user: owner(),
            organization: organization_id(),
            project: Some(project_id()),
            home: Some(project()),
            deployed: false,
            permissions: Permissions::ALL,
            expires_at: key.expires_at,
        }
    );
}

#[test]
fn the_text_of_a_key_is_a_prefix_an_identifier_and_a_secret() {
    let CreatedKey { key, secret } = draft();
    let text = secret.key_text(key.id);
    let parts: Vec<_> = text.splitn(3, '_').collect();
    assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("csk", 26, 43));
    assert_eq!(parts[1], key.id.to_string());
    assert_eq!((key.last4.as_str(), secret.last4().as_str()), (&parts[2][39..], &parts[2][39..]));
    assert_eq!(masked(key.id, &key.last4), format!("csk_{}_****{}", key.id, &parts[2][39..]));
    let (id, again) = KeySecret::parse_key(&text).expect("its own text");
    assert!(id == key.id && key.hash.matches(&again));
}

#[test]
fn nothing_of_the_secret_is_in_debug_output() {
    let made = draft();
    let text = made.secret.key_text(made.key.id);
    let given = format!("{made:?}");
    assert!(!given.contains(&text[31..]), "{given}");
    assert_eq!(format!("{:?}", made.secret), "KeySecret(…)");
}

#[tokio::test]
async fn whatever_is_wrong_with_a_key_the_answer_is_the_same() {
    let CreatedKey { key, secret } = draft();
    let text = secret.key_text(key.id);
    let mut wrong = text.clone();
    wrong.replace_range(40..41, if &text[40..41] == "x" { "y" } else { "x" });
    type Change = Box<dyn FnOnce(&mut KeyWithHash)>;
    let cases: Vec<(&str, String, Change)> = vec![
        ("empty", String::new(), Box::new(|_| {})),
        ("no prefix", text[4..].to_owned(), Box::new(|_| {})),
        ("another prefix", text.replacen("csk", "sk", 1), Box::new(|_| {})),
        ("no secret", text[..30].to_owned(), Box::new(|_| {})),
        ("a short secret", text[..73].to_owned(), Box::new(|_| {})),
        ("a long secret", format!("{text}A"), Box::new(|_| {})),
        ("padding", format!("{text}="), Box::new(|_| {})),
        ("space before", format!(" {text}"), Box::new(|_| {})),
        ("not an identifier", text.replacen(&text[4..30], "o", 1), Box::new(|_| {})),
        ("unknown", secret.key_text(ApiKeyId::from_ulid(nth(99))), Box::new(|_| {})),
        ("wrong secret", wrong, Box::new(|_| {})),
        ("expired", text.clone(), Box::new(|stored| stored.key.expires_at = Some(NOON))),
        ("deleted", text.clone(), Box::new(|stored| stored.key.deleted_at = Some(NOON))),
        ("project deleted", text.clone(), Box::new(|stored| stored.project_deleted = true)),
    ];
    let mut given = Vec::new();
    for (case, shown, change) in cases {
        let error = with(change).authenticate(&shown).await.err().unwrap_or_else(|| panic!("{case} was believed"));
        assert!(matches!(error, AuthenticateError::Refused), "{case}: {error:?}");
        given.push(error.to_string());
    }
    given.dedup();
    assert_eq!(given, ["the credential is missing or not valid"]);
}

#[tokio::test]
async fn a_store_that_is_away_is_no_refusal() {
    let mut repository = MockApiKeyRepository::new();
    repository.expect_find().returning(|_| Err(store_down()));
    let CreatedKey { key, secret } = draft();
    let error = keys(repository).authenticate(&secret.key_text(key.id)).await.expect_err("the store is down");
    assert!(matches!(error, AuthenticateError::Store(_)), "{error:?}");
}

#[tokio::test]
async fn a_new_key_is_stored_without_its_secret() {
    let mut repository = MockApiKeyRepository::new();
    repository
        .expect_insert()
        .withf(|key: &ApiKey| key.expires_at == Some(NOON + Duration::days(30)) && key.deleted_at.is_none())
        .times(1)
        .returning(|_| Ok(()));
    let request = KeyRequest { name: Some(" ci ".to_owned()), days_to_expire: Some(30), ..KeyRequest::default() };
    let made = keys(repository).create(organization_id(), owner(), request).await.expect("made");
    assert_eq!((made.key.name.as_str(), made.key.hash), ("ci", made.secret.hash()));
}

#[tokio::test]
async fn a_key_needs_a_name_and_a_term_within_ten_years() {
    for (name, days, expected) in [
        (None, None, vec![("name", FieldCode::Required)]),
        (Some(" "), None, vec![("name", FieldCode::TooShort)]),
        (Some("ci"), Some(0), vec![("days_to_expire", FieldCode::OutOfRange)]),
        (None, Some(3651), vec![("name", FieldCode::Required), ("days_to_expire", FieldCode::OutOfRange)]),
    ] {
        let request = KeyRequest { name: name.map(str::to_owned), days_to_expire: days, ..KeyRequest::default() };
        let error =
            keys(MockApiKeyRepository::new()).create(organization_id(), owner(), request).await.expect_err("bad");
        let UseCaseError::Invalid(invalid) = error else { panic!("{error:?}") };
        assert_eq!(invalid.fields().iter().map(|bad| (bad.field.as_str(), bad.code)).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_key_is_revoked_once() {
    let id = ApiKeyId::from_ulid(nth(1));
    let mut repository = MockApiKeyRepository::new();
    let mut answers = vec![false, true];
    repository
        .expect_delete()
        .withf(move |organization, key, at| (*organization, *key, *at) == (organization_id(), id, NOON))
        .times(2)
        .returning(move |_, _, _| Ok(answers.pop().expect("asked twice")));
    let keys = keys(repository);
    keys.revoke(organization_id(), id).await.expect("revoked");
    let error = keys.revoke(organization_id(), id).await.expect_err("it is gone");
    assert!(matches!(error, UseCaseError::NotFound(missing) if missing == NotFound::new("API key", id.to_string())));
}

#[test]
fn an_exact_expiry_lies_in_the_future_and_excludes_a_number_of_days() {
    let repository = MockApiKeyRepository::new;
    let draft = |days, end| {
        let request =
            KeyRequest { name: Some("ci".to_owned()), days_to_expire: days, expires_at: end, ..KeyRequest::default() };
        keys(repository()).draft(organization_id(), owner(), request).map(|made| made.key.expires_at)
    };
    let soon = NOON + Duration::seconds(1);
    assert_eq!(draft(None, Some(soon)), Ok(Some(soon)));
    assert_eq!(draft(None, Some(NOON + Duration::days(3650))), Ok(Some(NOON + Duration::days(3650))));
    let fields = |days, end| {
        let refused = draft(days, Some(end)).expect_err("refused");
        refused.fields().iter().map(|field| (field.field.clone(), field.code)).collect::<Vec<_>>()
    };
    assert_eq!(fields(None, NOON), [("expires_at".to_owned(), FieldCode::OutOfRange)]);
    assert_eq!(
        fields(None, NOON + Duration::days(3650) + Duration::seconds(1)),
        [("expires_at".to_owned(), FieldCode::OutOfRange)]
    );
    assert_eq!(
        fields(Some(3), soon),
        [
            ("days_to_expire".to_owned(), FieldCode::MutuallyExclusive),
            ("expires_at".to_owned(), FieldCode::MutuallyExclusive)
        ]
    );
}
