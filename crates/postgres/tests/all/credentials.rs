//! Credentials: names, limits, sealed values.

use std::collections::BTreeMap;

use casement_domain::credential::{
    Credential, CredentialChange, CredentialFilter, CredentialRepository as _, CredentialSecret, CredentialStored,
    CredentialUpdated, MAX_VALUES, SealedSecret, SealedSecrets, SealedTotp, TotpAlgorithm, TotpParameters,
};
use casement_domain::name::LabelName;
use casement_domain::page::Page;
use casement_domain::project::{ProjectDeleted, ProjectRepository as _};
use casement_domain::sealing::{KeyId, Sealer as _};
use casement_domain::session::IdOrName;
use casement_domain::testing::{self, NOON, PlainSealer};
use casement_domain::{CredentialId, ProjectId};
use casement_postgres::{PgCredentials, PgProjects};
use pretty_assertions::assert_eq;
use ulid::Ulid;

use crate::support::TestResult;
use crate::world::{Fault, World, seconds};

const PAGE: Page = Page { limit: 100, offset: 0 };

fn id(n: u32) -> CredentialId {
    CredentialId::from_ulid(Ulid::from_parts(13, u128::from(n)))
}

fn name(text: &str) -> LabelName {
    LabelName::parse(text).unwrap_or_else(|bad| unreachable!("{bad}"))
}

fn sealed(n: u32, secret: CredentialSecret) -> Result<SealedSecret, Fault> {
    let sealed = PlainSealer.seal(&Credential::place(id(n), &secret), b"word")?;
    Ok(SealedSecret { credential: id(n), secret, sealed })
}

const UNUSUAL: TotpParameters = TotpParameters { algorithm: TotpAlgorithm::Sha512, digits: 8, period_seconds: 60 };

fn secrets(n: u32, names: &[&str], totp: bool) -> Result<SealedSecrets, Fault> {
    let value = |name: &&str| Ok(((*name).to_owned(), sealed(n, CredentialSecret::Value((*name).to_owned()))?.sealed));
    Ok(SealedSecrets {
        values: names.iter().map(value).collect::<Result<BTreeMap<_, _>, Fault>>()?,
        totp: totp
            .then(|| sealed(n, CredentialSecret::Totp))
            .transpose()?
            .map(|one| SealedTotp { sealed: one.sealed, parameters: UNUSUAL }),
    })
}

fn credential(n: u32, named: &str, secrets: &SealedSecrets) -> Credential {
    Credential {
        id: id(n),
        project: testing::project_id(),
        name: name(named),
        domain: format!("d{n}.example"),
        sso_provider: None,
        value_keys: secrets.values.keys().cloned().collect(),
        totp: secrets.totp.as_ref().map(|totp| totp.parameters),
        created_at: seconds(i64::from(n)),
        updated_at: seconds(i64::from(n)),
    }
}

async fn stored(world: &World) -> Result<PgCredentials, Fault> {
    let credentials = PgCredentials::new(world.db.database().clone());
    for (n, named, names, totp) in [(1, "Shop", &["b", "a"][..], true), (2, "50% _off", &[], false)] {
        let secrets = secrets(n, names, totp)?;
        assert_eq!(credentials.create(&credential(n, named, &secrets), &secrets, 10).await?, CredentialStored::Yes);
    }
    Ok(credentials)
}

#[tokio::test]
async fn a_credential_is_found_in_its_project_alone_by_a_name_that_no_other_bears() -> TestResult {
    let world = World::new().await?;
    let credentials = stored(&world).await?;
    let (ours, others) = (testing::project_id(), ProjectId::from_ulid(Ulid::from_parts(1, 99)));
    let first = credential(1, "Shop", &secrets(1, &["a", "b"], true)?);
    assert_eq!(credentials.find(ours, &IdOrName::Id(id(1))).await?, Some(first.clone()));
    assert_eq!(credentials.find(ours, &IdOrName::Name("shóp".to_owned())).await?, Some(first.clone()));
    assert_eq!(credentials.find(others, &IdOrName::Id(id(1))).await?, None);

    let none = SealedSecrets::default();
    assert_eq!(credentials.create(&credential(3, "SHOP", &none), &none, 10).await?, CredentialStored::NameTaken);
    let foreign = Credential { project: others, ..credential(3, "x", &none) };
    assert_eq!(credentials.create(&foreign, &none, 10).await?, CredentialStored::ProjectGone);
    let full = credentials.create(&credential(3, "x", &none), &none, 2).await?;
    assert!(matches!(full, CredentialStored::LimitExceeded(limit) if (limit.value, limit.used) == (2, 2)), "{full:?}");

    let list = async |domain: Option<&str>, query: Option<&str>| {
        let filter = CredentialFilter { domain: domain.map(str::to_owned), query: query.map(str::to_owned) };
        let listed = credentials.list(ours, &filter, PAGE).await?;
        Ok::<_, Fault>(listed.items.into_iter().map(|one| one.name.as_str().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(list(None, None).await?, ["50% _off", "Shop"]);
    assert_eq!(list(Some("D1.example"), None).await?, ["Shop"]);
    assert_eq!(list(Some("d_.example"), None).await?, [""; 0]);
    assert_eq!(list(None, Some("%")).await?, ["50% _off"]);
    assert_eq!(list(None, Some("D2.EX")).await?, ["50% _off"]);
    assert_eq!(list(None, Some(&id(1).to_string())).await?, ["Shop"]);
    assert_eq!(list(None, Some("'; DROP TABLE credentials; --")).await?, [""; 0]);

    let projects = PgProjects::new(world.db.database().clone());
    let refused = projects.delete(testing::organization_id(), ours, NOON).await?;
    assert!(
        matches!(&refused, ProjectDeleted::InUse(active) if active.iter().any(|one| one.kind == "credentials")),
        "{refused:?}"
    );
    assert!(credentials.delete(id(1)).await?);
    assert!(!credentials.delete(id(1)).await?);
    assert_eq!(credentials.secrets(id(1)).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_change_forgets_then_merges_and_is_whole_or_not_at_all() -> TestResult {
    let world = World::new().await?;
    let credentials = stored(&world).await?;
    let new = secrets(1, &["a", "c"], false)?;
    let change = CredentialChange {
        sso_provider: Some(Some("google".to_owned())),
        remove: vec!["a".to_owned(), "b".to_owned(), "unknown".to_owned()],
        values: new.values.clone(),
        totp: Some(None),
        ..CredentialChange::default()
    };
    let CredentialUpdated::Yes(changed) = credentials.update(id(1), &change, seconds(50)).await? else {
        return Err("it was not changed".into());
    };
    assert_eq!(changed.value_keys, ["a", "c"]);
    assert_eq!((changed.sso_provider.as_deref(), changed.totp), (Some("google"), None));
    assert_eq!((changed.created_at, changed.updated_at), (seconds(1), seconds(50)));
    assert_eq!(credentials.secrets(id(1)).await?, Some(new));

    let before = credentials.find(testing::project_id(), &IdOrName::Id(id(1))).await?;
    let taken = CredentialChange { name: Some(name("50% _OFF")), remove: vec!["a".to_owned()], ..Default::default() };
    assert_eq!(credentials.update(id(1), &taken, seconds(60)).await?, CredentialUpdated::NameTaken);
    let many: Vec<String> = (1..MAX_VALUES).map(|n| format!("v{n}")).collect();
    let many = secrets(1, &many.iter().map(String::as_str).collect::<Vec<_>>(), false)?.values;
    let many = CredentialChange { values: many, ..Default::default() };
    assert_eq!(credentials.update(id(1), &many, seconds(60)).await?, CredentialUpdated::TooManyValues);
    assert_eq!(credentials.find(testing::project_id(), &IdOrName::Id(id(1))).await?, before);
    assert_eq!(credentials.update(id(9), &taken, seconds(60)).await?, CredentialUpdated::NotFound);
    Ok(())
}

#[tokio::test]
async fn secrets_are_found_by_the_key_that_they_are_sealed_under() -> TestResult {
    let world = World::new().await?;
    let credentials = stored(&world).await?;
    let current = PlainSealer::KEY;
    assert_eq!(credentials.keys().await?, [current]);
    assert_eq!(credentials.sealed_with_other_key(current, 10).await?, []);
    let other = KeyId(*b"new-key!");
    assert_eq!(credentials.sealed_with_other_key(other, 2).await?.len(), 2);
    let old = credentials.sealed_with_other_key(other, 10).await?;
    assert_eq!(old.len(), 3);
    for one in [sealed(1, CredentialSecret::Value("a".to_owned()))?, sealed(1, CredentialSecret::Totp)?] {
        assert!(old.contains(&one));
        credentials.reseal(&SealedSecret { sealed: b"changed meanwhile".to_vec(), ..one.clone() }, b"lost").await?;
        credentials.reseal(&one, b"next").await?;
    }
    let now = credentials.secrets(id(1)).await?.ok_or("it is gone")?;
    let totp = now.totp.ok_or("it has no secret of codes")?;
    assert_eq!((now.values["a"].as_slice(), totp.sealed.as_slice()), (&b"next"[..], &b"next"[..]));
    assert_eq!(totp.parameters, UNUSUAL);
    Ok(())
}
