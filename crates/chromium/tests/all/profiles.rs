//! Tests of profiles: loaded into starting and running browsers, and saved, also after a server restart.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use casement_chromium::{BrowserExitReason, Engine, EngineEvent};
use casement_domain::browser::{BrowserEngine as _, EngineError, Shape};
use casement_domain::ids::{BrowserId, ProfileId};
use casement_domain::profile::{LoadedProfile, ProfileMachine as _, ProfileSource};
use casement_domain::session_operation::{ByteStream, OperationError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rustix::process::Signal;
use ulid::Ulid;

use super::cdp::Cdp;
use super::fake_egress::{FakeEgress, SITE};
use super::support::{Fixture, chromium, config, gone, headless, launch, next, signal, within};

const WRITE: &str = "document.cookie = 'ends=1'; document.cookie = 'stays=1; max-age=999'; localStorage.kept = 'here'";
pub(super) const READ: &str = "document.cookie.split('; ').sort().join() + localStorage.kept";
pub(super) const WRITTEN: &str = "ends=1,stays=1here";

/// The profile of a start.
pub(super) enum Source {
    Nothing,
    Whole(Vec<u8>),
    /// The valid bytes, followed by the error of an altered archive.
    Altered(Vec<u8>),
    Gone,
}

#[async_trait]
impl ProfileSource for Source {
    async fn archive(&self, _: &LoadedProfile) -> Result<Option<ByteStream>, OperationError> {
        let altered = || Err(OperationError::Failed("the bytes of the profile were altered".to_owned()));
        match self {
            Self::Nothing => Ok(None),
            Self::Whole(bytes) => Ok(Some(pieces(bytes))),
            Self::Altered(bytes) => Ok(Some(pieces(bytes).chain(stream::iter([altered()])).boxed())),
            Self::Gone => Err(OperationError::Missing("the profile is no longer stored".to_owned())),
        }
    }

    async fn used(&self, _: &LoadedProfile) -> Result<(), OperationError> {
        Ok(())
    }
}

fn pieces(bytes: &[u8]) -> ByteStream {
    stream::iter(bytes.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect::<Vec<_>>()).boxed()
}

/// The profile of [`with_profile`].
const SAVED: LoadedProfile =
    LoadedProfile { id: ProfileId::from_ulid(Ulid::from_parts(1, 1)), version: None, save_changes: true };

pub(super) fn with_profile(save_changes: bool) -> Shape {
    Shape { profile: Some(LoadedProfile { save_changes, ..SAVED }), ..headless() }
}

pub(super) async fn fixture(source: Source) -> anyhow::Result<Fixture> {
    let mut fixture = Fixture::new().await?;
    fixture.engine = fixture.engine.clone().with_profiles(Arc::new(source));
    Ok(fixture)
}

pub(super) async fn capture(engine: &Engine, id: BrowserId) -> anyhow::Result<Vec<u8>> {
    let archive = engine.capture(id, SAVED).await?;
    Ok(within(Duration::from_secs(60), archive.try_collect::<Vec<Bytes>>()).await??.concat())
}

pub(super) async fn write(engine: &Engine, id: BrowserId) -> anyhow::Result<()> {
    let mut page = Cdp::attach(engine, id).await?;
    ensure!(page.open(SITE).await?.is_none());
    page.evaluate(WRITE).await?;
    Ok(())
}

pub(super) async fn read(engine: &Engine, id: BrowserId) -> anyhow::Result<serde_json::Value> {
    let mut page = Cdp::attach(engine, id).await?;
    ensure!(page.open(SITE).await?.is_none());
    page.evaluate(READ).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_taken_out_although_the_server_dies_meanwhile() -> anyhow::Result<()> {
    let mut fixture = fixture(Source::Nothing).await?;
    let id = fixture.start(with_profile(true)).await?;
    write(&fixture.engine, id).await?;
    let mut events = fixture.engine.events();
    let mut first = fixture.engine.capture(id, SAVED).await?;
    first.next().await.context("a piece")??;
    drop(first);
    gone(&fixture.engine, id, |line| line.contains("/chromium")).await?;

    fixture.engine.clone().detach().await;
    fixture.egress = Arc::new(FakeEgress::default());
    fixture.engine = Engine::new(config(fixture.dir.path().to_owned())?, fixture.egress.clone()).await?;
    assert_eq!(fixture.engine.find_running().await?, [id]);
    let archive = capture(&fixture.engine, id).await?;
    assert_eq!(capture(&fixture.engine, id).await?, archive);
    assert!(events.try_recv().is_err(), "what was asked for is no news");
    fixture.engine.end(id).await?;
    assert_eq!(fixture.remains(id), Vec::<String>::new());

    fixture.engine = fixture.engine.clone().with_profiles(Arc::new(Source::Whole(archive)));
    let id = fixture.start(with_profile(false)).await?;
    assert_eq!(read(&fixture.engine, id).await?, WRITTEN);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_that_crashed_still_has_its_profile() -> anyhow::Result<()> {
    let fixture = fixture(Source::Nothing).await?;
    let id = fixture.start(with_profile(true)).await?;
    write(&fixture.engine, id).await?;
    let mut events = fixture.engine.events();
    signal(chromium(&fixture.engine, id).await?, Signal::KILL)?;
    assert_eq!(next(&mut events).await?, EngineEvent { browser: id, reason: BrowserExitReason::Crashed });
    ensure!(!capture(&fixture.engine, id).await?.is_empty());
    fixture.engine.end(id).await?;
    assert_eq!(fixture.remains(id), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_a_profile_that_cannot_be_used_leaves_nothing() -> anyhow::Result<()> {
    for source in [Source::Whole(b"no archive".to_vec()), Source::Altered(vec![7; 5000]), Source::Gone] {
        let fixture = fixture(source).await?;
        let launch = launch(with_profile(false));
        let refused = fixture.engine.start(&launch).await;
        ensure!(matches!(&refused, Err(EngineError::Profile(why)) if why.contains("profile")), "{refused:?}");
        assert_eq!(fixture.remains(launch.id), Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_brought_into_a_browser_that_runs_or_leaves_it_as_it_is() -> anyhow::Result<()> {
    let fixture = fixture(Source::Nothing).await?;
    let [first, second] = [fixture.start(headless()).await?, fixture.start(headless()).await?];
    write(&fixture.engine, first).await?;
    let archive = capture(&fixture.engine, first).await?;

    let before = fixture.engine.cdp_path(second).await?;
    let cut = Source::Altered(archive[..archive.len() / 2].to_vec());
    let profile = with_profile(false).profile.context("it has one")?;
    let cut = cut.archive(&profile).await?.context("it has bytes")?;
    for bad in [pieces(b"no archive"), pieces(&archive[..archive.len() - 1]), cut] {
        let refused = fixture.engine.load(second, bad).await;
        ensure!(matches!(&refused, Err(OperationError::Engine(EngineError::Profile(_)))), "{refused:?}");
    }
    assert_eq!(fixture.engine.cdp_path(second).await?, before);
    fixture.engine.load(second, pieces(&archive)).await?;
    assert_ne!(fixture.engine.cdp_path(second).await?, before);
    assert_eq!(read(&fixture.engine, second).await?, WRITTEN);
    Ok(())
}
