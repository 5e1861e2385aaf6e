//! A session whose caller does not have it yet.

use actix_web::HttpResponse;
use actix_web::body::MessageBody as _;
use casement_domain::{pool::Leases, session::Session};
use tokio::runtime::Handle;
use tracing::Instrument as _;

use crate::{
    relay::{DeliveryReceipt, DeliveryReport},
    state::Services,
};

/// A session on its way to its caller: dropped on the way, it is given back.
pub(crate) struct UndeliveredSession {
    session: Session,
    give_back: Option<(Leases, Handle)>,
}

impl UndeliveredSession {
    pub(crate) fn new(session: Session, services: &Services) -> Self {
        Self { session, give_back: Some((services.leases.clone(), services.runtime.clone())) }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The answer with it; a connection that ends before the answer has arrived at its client's machine gives it back, too.
    pub(crate) fn deliver(self, receipt: DeliveryReceipt, response: HttpResponse) -> HttpResponse {
        self.deliver_then(receipt, response, || {})
    }

    /// The same. `then` runs when the answer has arrived, on the server's thread.
    pub(crate) fn deliver_then(
        mut self,
        receipt: DeliveryReceipt,
        response: HttpResponse,
        then: impl FnOnce() + Unpin + 'static,
    ) -> HttpResponse {
        let session = self.session.clone();
        let Some((leases, runtime)) = self.give_back.take() else { return response };
        response
            .map_body(|_, body| {
                let bytes = body.try_into_bytes().unwrap_or_default();
                DeliveryReport::new(bytes, receipt, move |delivered| {
                    if delivered { then() } else { give_back(session, leases, &runtime) }
                })
            })
            .map_into_boxed_body()
    }
}

impl Drop for UndeliveredSession {
    fn drop(&mut self) {
        if let Some((leases, runtime)) = self.give_back.take() {
            give_back(self.session.clone(), leases, &runtime);
        }
    }
}

fn give_back(session: Session, leases: Leases, runtime: &Handle) {
    let ending = async move {
        let undelivered = leases.undelivered(&session).await;
        let session = session.id;
        match undelivered {
            Ok(()) => tracing::info!(%session, "given back: its caller was gone"),
            Err(error) => tracing::warn!(%session, %error, "cannot be given back now; trying again"),
        }
    };
    runtime.spawn(ending.in_current_span());
}
