//! What the tests share.

use std::future::Future;
use std::time::Duration;

use casement_domain::browser::{Shape, Viewport};
use casement_domain::engine::EngineName;
use casement_domain::ids::BrowserId;
use casement_webdriver::{GridError, RemoteSession, SessionLost, WebDriverConfig, WebDriverEngine};
use serde_json::Map;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The timeout of what happens in seconds on a quiet machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(90);
/// The mark of the installation of the tests.
pub(crate) const OWNER: &str = "test-1";

pub(crate) fn config(url: &str) -> WebDriverConfig {
    let name = EngineName::parse("grid").expect("a name");
    let mut config = WebDriverConfig::new(name, url, OWNER.to_owned()).expect("valid settings");
    config.start_timeout = Duration::from_secs(30);
    config.queue_timeout = Some(Duration::from_secs(1));
    config.command_timeout = Duration::from_secs(5);
    config
}

pub(crate) fn engine(config: WebDriverConfig) -> WebDriverEngine {
    WebDriverEngine::new(config).expect("valid settings")
}

pub(crate) fn browser(number: u128) -> BrowserId {
    BrowserId::from_ulid(ulid::Ulid::from_parts(1_700_000_000_000, number))
}

pub(crate) fn shape() -> Shape {
    let viewport = Viewport { width: 800, height: 600, refresh_rate: 25 };
    Shape { headless: true, viewport, ..Shape::default() }
}

pub(crate) async fn started(engine: &WebDriverEngine, number: u128) -> RemoteSession {
    engine.start(browser(number), &shape(), &Map::new()).await.expect("a session")
}

pub(crate) async fn start_error(engine: &WebDriverEngine, number: u128) -> GridError {
    engine.start(browser(number), &shape(), &Map::new()).await.expect_err("no session")
}

/// Waits until a condition is true, for at most `within`.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, within: Duration, condition: impl Fn() -> F) {
    let until = Instant::now() + within;
    while !condition().await {
        assert!(Instant::now() < until, "{what} did not happen within {within:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A watch of an engine that ends with the value.
pub(crate) struct Watch {
    pub(crate) lost: mpsc::UnboundedReceiver<SessionLost>,
    task: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn of(engine: &WebDriverEngine) -> Self {
        let (sender, lost) = mpsc::unbounded_channel();
        let engine = engine.clone();
        let task = tokio::spawn(async move {
            engine
                .watch(move |session| {
                    sender.send(session).ok();
                })
                .await;
        });
        Self { lost, task }
    }

    /// Returns the next loss within a time.
    pub(crate) async fn next(&mut self, within: Duration) -> Option<SessionLost> {
        tokio::time::timeout(within, self.lost.recv()).await.ok().flatten()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
