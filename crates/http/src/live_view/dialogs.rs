//! JavaScript dialogs of the pages of a session without a display, as one viewer sees and answers them.

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

/// The pause after a failure, because the browser may be restarting.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);
/// The maximum size of the answer to a prompt, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Access to the dialogs of a session without a display.
#[derive(Clone)]
pub struct PageDialogs {
    /// Reports and answers dialogs.
    pub pages: Arc<dyn LiveDisplay>,
    /// The browser of the session.
    pub browser: BrowserId,
}

type Request = BoxFuture<'static, Result<OpenDialogs, OperationError>>;

/// The dialogs as one viewer sees them.
pub(super) struct Dialogs {
    source: PageDialogs,
    seen_state: Option<u64>,
    /// Whether the viewer's page shows any dialog.
    is_showing: bool,
    request: Option<Request>,
}

impl Dialogs {
    pub(super) fn new(source: PageDialogs) -> Self {
        Self { source, seen_state: None, is_showing: false, request: None }
    }

    /// Waits for the next message for the page: the open dialogs. Cancel-safe.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            let (source, seen_state) = (&self.source, self.seen_state);
            let request = self.request.get_or_insert_with(|| {
                let PageDialogs { pages, browser } = source.clone();
                Box::pin(async move { pages.next_dialogs(browser, seen_state).await })
            });
            let result = request.await;
            self.request = None;
            match result {
                Ok(open) if self.seen_state == Some(open.state) => {}
                Ok(open) => {
                    self.seen_state = Some(open.state);
                    let has_changed = self.is_showing || !open.dialogs.is_empty();
                    self.is_showing = !open.dialogs.is_empty();
                    if has_changed {
                        return message(&open);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot read the dialogs of a session");
                    let seen_state = self.seen_state.take();
                    self.request = Some(Box::pin(async move {
                        sleep(RETRY_BACKOFF).await;
                        Ok(OpenDialogs { state: seen_state.unwrap_or_default().wrapping_sub(1), dialogs: Vec::new() })
                    }));
                }
            }
        }
    }

    /// Answers a dialog in a separate task.
    pub(super) fn answer(&self, answer: DialogAnswer) {
        if answer.text.len() > MAX_ANSWER_BYTES {
            return;
        }
        let PageDialogs { pages, browser } = self.source.clone();
        let task = async move {
            if let Err(error) = pages.answer_dialog(browser, answer).await {
                tracing::debug!(%error, "a dialog was not answered");
            }
        };
        actix_web::rt::spawn(task.in_current_span());
    }
}

fn message(open: &OpenDialogs) -> Value {
    let dialogs: Vec<Value> = open
        .dialogs
        .iter()
        .map(|dialog| json!({ "page": dialog.page, "kind": dialog.kind, "message": dialog.message, "default": dialog.default_text }))
        .collect();
    json!({ "t": "dialogs", "dialogs": dialogs })
}
