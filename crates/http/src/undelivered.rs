//! Sessions whose response was not delivered to the caller yet.

use actix_web::HttpResponse;
use actix_web::body::MessageBody as _;
use casement_domain::{pool::Leases, session::Session};
use tokio::runtime::Handle;
use tracing::Instrument as _;

use crate::{
    relay::{DeliveryReceipt, DeliveryReport},
    state::Services,
};

/// A session whose response was not delivered yet. If this is dropped before delivery, the session is returned.
pub(crate) struct UndeliveredSession {
    session: Session,
    on_drop: Option<(Leases, Handle)>,
}

impl UndeliveredSession {
    pub(crate) fn new(session: Session, services: &Services) -> Self {
        Self { session, on_drop: Some((services.leases.clone(), services.runtime.clone())) }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the session without a wait for its delivery. From now on its own timeout ends it.
    pub(crate) fn hand_over(mut self) -> Session {
        self.on_drop = None;
        self.session.clone()
    }

    /// Sends the response. The session is also returned if the connection ends before the client's machine has the
    /// response.
    pub(crate) fn deliver(self, receipt: DeliveryReceipt, response: HttpResponse) -> HttpResponse {
        self.deliver_then(receipt, response, || {})
    }

    /// Sends the response as `deliver` does, and calls `work` on the server's thread when it was written.
    pub(crate) fn deliver_then(
        mut self,
        receipt: DeliveryReceipt,
        response: HttpResponse,
        work: impl FnOnce() + 'static,
    ) -> HttpResponse {
        let session = self.session.clone();
        let Some((leases, runtime)) = self.on_drop.take() else { return response };
        response
            .map_body(|_, body| {
                let bytes = body.try_into_bytes().unwrap_or_default();
                let report = DeliveryReport::new(bytes, receipt, move |delivered| {
                    if !delivered {
                        return_session(session, leases, &runtime);
                    }
                });
                report.after_write(work)
            })
            .map_into_boxed_body()
    }
}

impl Drop for UndeliveredSession {
    fn drop(&mut self) {
        if let Some((leases, runtime)) = self.on_drop.take() {
            return_session(self.session.clone(), leases, &runtime);
        }
    }
}

fn return_session(session: Session, leases: Leases, runtime: &Handle) {
    let task = async move {
        let undelivered = leases.undelivered(&session).await;
        let session = session.id;
        match undelivered {
            Ok(()) => tracing::info!(%session, "undelivered session returned"),
            Err(error) => tracing::warn!(%session, %error, "an undelivered session cannot be returned now; retrying"),
        }
    };
    runtime.spawn(task.in_current_span());
}
