//! Dialogs of pages without a display, as one viewer is shown them and answers them.

use std::{sync::Arc, time::Duration};

use casement_domain::{
    BrowserId,
    live_view::{DialogAnswer, LiveDisplay, OpenDialogs},
    session_operation::OperationError,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::Instrument as _;

/// How long after a failure it is asked again: the browser may be starting anew.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// The longest answer to a question, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The way to the dialogs of a session without a display.
#[derive(Clone)]
pub struct PageDialogs {
    /// Tells of them and answers them.
    pub pages: Arc<dyn LiveDisplay>,
    /// Whose they are.
    pub browser: BrowserId,
}

type Coming = BoxFuture<'static, Result<OpenDialogs, OperationError>>;

/// The dialogs as one viewer follows them.
pub(super) struct Dialogs {
    way: PageDialogs,
    seen: Option<u64>,
    /// Whether the page has been told of any.
    told: bool,
    coming: Option<Coming>,
}

impl Dialogs {
    pub(super) fn new(way: PageDialogs) -> Self {
        Self { way, seen: None, told: false, coming: None }
    }

    /// The next message for the page: what is open now. Safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            let (way, seen) = (&self.way, self.seen);
            let coming = self.coming.get_or_insert_with(|| {
                let PageDialogs { pages, browser } = way.clone();
                Box::pin(async move { pages.next_dialogs(browser, seen).await })
            });
            let came = coming.await;
            self.coming = None;
            match came {
                Ok(open) if self.seen == Some(open.state) => {}
                Ok(open) => {
                    self.seen = Some(open.state);
                    let is_news = self.told || !open.dialogs.is_empty();
                    self.told = !open.dialogs.is_empty();
                    if is_news {
                        return message(&open);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the dialogs of a session are not told");
                    let seen = self.seen.take();
                    self.coming = Some(Box::pin(async move {
                        sleep(RETRY_BACKOFF).await;
                        Ok(OpenDialogs { state: seen.unwrap_or_default().wrapping_sub(1), dialogs: Vec::new() })
                    }));
                }
            }
        }
    }

    /// Answers a dialog, beside what else the viewer does.
    pub(super) fn answer(&self, answer: DialogAnswer) {
        if answer.text.len() > MAX_ANSWER_BYTES {
            return;
        }
        let PageDialogs { pages, browser } = self.way.clone();
        let answered = async move {
            if let Err(error) = pages.answer_dialog(browser, answer).await {
                tracing::debug!(%error, "a dialog was not answered");
            }
        };
        actix_web::rt::spawn(answered.in_current_span());
    }
}

fn message(open: &OpenDialogs) -> Value {
    let dialogs: Vec<Value> = open
        .dialogs
        .iter()
        .map(|one| json!({ "page": one.page, "kind": one.kind, "message": one.message, "default": one.default_text }))
        .collect();
    json!({ "t": "dialogs", "dialogs": dialogs })
}
