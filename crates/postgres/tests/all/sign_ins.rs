//! Sign-ins to the web interface, which all nodes share.

use casement_domain::ApiKeyId;
use casement_domain::api_key::ApiKeyDirectory as _;
use casement_domain::sign_in::{CookieHash, SignIn, SignInBounds, SignInRepository as _};
use casement_postgres::PgSignIns;
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{World, key, key_id, seconds};

fn cookie(n: u8) -> CookieHash {
    CookieHash([n; 32])
}

/// The n-th sign-in, which began n seconds after noon.
fn sign_in(n: u8, key: ApiKeyId) -> SignIn {
    let at = seconds(n.into());
    SignIn { cookie: cookie(n), key, token: format!("token {n}"), started_at: at, last_used_at: at }
}

fn bounds() -> SignInBounds {
    SignInBounds { started_after: seconds(-10), used_after: seconds(-10), max_per_key: 2, max_total: 3 }
}

async fn cookies(rows: &PgSignIns) -> Result<Vec<u8>, crate::world::Fault> {
    let mut found = Vec::new();
    for n in 1..=9 {
        if rows.find(cookie(n)).await?.is_some() {
            found.push(n);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn every_node_finds_a_sign_in_and_ends_it() -> TestResult {
    let world = World::new().await?;
    let node = || PgSignIns::new(world.db.database().clone());
    let (one, other) = (node(), node());
    one.create(&sign_in(1, key_id(1)), &bounds()).await?;
    assert_eq!(other.find(cookie(1)).await?, Some(sign_in(1, key_id(1))));

    other.mark_used(cookie(1), seconds(70)).await?;
    one.mark_used(cookie(1), seconds(69)).await?;
    assert_eq!(one.find(cookie(1)).await?.ok_or("gone")?.last_used_at, seconds(70), "the later use stays");

    other.delete(cookie(1)).await?;
    assert_eq!(one.find(cookie(1)).await?, None);
    one.create(&sign_in(2, key_id(1)), &bounds()).await?;
    other.delete_of_key(key_id(1)).await?;
    assert_eq!(one.find(cookie(2)).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_new_sign_in_displaces_the_longest_idle_beyond_the_bounds_and_the_expired() -> TestResult {
    let world = World::new().await?;
    assert!(world.keys.rotate(key_id(1), seconds(100), &key(2)?).await?, "there is a second key");
    let rows = PgSignIns::new(world.db.database().clone());
    for n in [1, 2] {
        rows.create(&sign_in(n, key_id(1)), &bounds()).await?;
    }
    rows.mark_used(cookie(1), seconds(20)).await?;
    rows.create(&sign_in(3, key_id(1)), &bounds()).await?;
    assert_eq!(cookies(&rows).await?, [1, 3], "two with one key");
    for n in [4, 5] {
        rows.create(&sign_in(n, key_id(2)), &bounds()).await?;
    }
    assert_eq!(cookies(&rows).await?, [1, 4, 5], "three in total");
    let later = SignInBounds { used_after: seconds(4), ..bounds() };
    rows.create(&sign_in(6, key_id(2)), &later).await?;
    assert_eq!(cookies(&rows).await?, [1, 5, 6], "the fourth has expired");
    Ok(())
}
