//! The secret that all nodes of a database share.

use std::sync::Arc;

use casement_domain::sealing::{KeyId, SealError, Sealer};
use casement_domain::shared_secret::{KeyPurpose, SharedSecret, SharedSecretError, SharedSecrets};
use casement_domain::testing::{CountingIds, PlainSealer};
use casement_postgres::PgSharedSecret;
use pretty_assertions::assert_eq;
use secrecy::SecretSlice;

use crate::support::TestResult;
use crate::world::World;

/// Another master key.
struct OtherKey;

impl OtherKey {
    const KEY: KeyId = KeyId(*b"test-ke2");
}

impl Sealer for OtherKey {
    fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut sealed = PlainSealer.seal(place, plain)?;
        sealed[1..9].copy_from_slice(&Self::KEY.0);
        Ok(sealed)
    }

    fn open(&self, place: &str, sealed: &[u8]) -> Result<SecretSlice<u8>, SealError> {
        // A rotation opens what the earlier key sealed.
        let mut sealed = sealed.to_vec();
        sealed[1..9].copy_from_slice(&PlainSealer::KEY.0);
        PlainSealer.open(place, &sealed)
    }

    fn current(&self) -> Result<KeyId, SealError> {
        Ok(Self::KEY)
    }

    fn knows(&self, key: KeyId) -> bool {
        key == Self::KEY
    }
}

fn secrets(world: &World) -> SharedSecrets {
    SharedSecrets::new(Arc::new(PgSharedSecret::new(world.db.database().clone())))
}

fn token_key(secret: &SharedSecret) -> [u8; 32] {
    secret.key(KeyPurpose::SessionTokens)
}

#[tokio::test]
async fn nodes_that_start_for_the_first_time_at_once_share_one_secret() -> TestResult {
    let world = World::without_anything().await?;
    let (one, other) = (secrets(&world), secrets(&world));
    assert_eq!(one.needed_key().await?, None);
    let entropy = CountingIds::default();
    let (first, second) = tokio::join!(one.open(&PlainSealer, &entropy), other.open(&PlainSealer, &entropy));
    let (first, second) = (token_key(&first?), token_key(&second?));
    assert_eq!(first, second);
    assert_eq!(token_key(&one.open(&PlainSealer, &entropy).await?), first, "after a restart");
    assert_eq!(other.needed_key().await?, Some(PlainSealer::KEY));
    Ok(())
}

#[tokio::test]
async fn a_node_with_another_master_key_is_refused_and_changes_nothing() -> TestResult {
    let world = World::without_anything().await?;
    let entropy = CountingIds::default();
    let secret = token_key(&secrets(&world).open(&PlainSealer, &entropy).await?);
    let refused = secrets(&world).open(&OtherKey, &entropy).await.err().ok_or("accepted")?;
    assert!(matches!(refused, SharedSecretError::OtherMasterKey(PlainSealer::KEY)), "{refused}");
    assert_eq!(token_key(&secrets(&world).open(&PlainSealer, &entropy).await?), secret);
    Ok(())
}

#[tokio::test]
async fn a_rotation_of_the_master_key_keeps_the_secret() -> TestResult {
    let world = World::without_anything().await?;
    let entropy = CountingIds::default();
    let before = token_key(&secrets(&world).open(&PlainSealer, &entropy).await?);
    assert_eq!(secrets(&world).used_keys().await?, [PlainSealer::KEY]);
    assert_eq!(secrets(&world).reseal(&OtherKey).await?.done, 1);
    assert_eq!(secrets(&world).reseal(&OtherKey).await?.done, 0, "once");
    assert_eq!(secrets(&world).used_keys().await?, [OtherKey::KEY]);
    assert_eq!(token_key(&secrets(&world).open(&OtherKey, &entropy).await?), before);
    Ok(())
}
