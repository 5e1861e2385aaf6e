//! Wires proxies: their rows, their passwords, their checks, and the routes of running browsers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use casement_domain::browser::BrowserRepository;
use casement_domain::network::DeniedRequest;
use casement_domain::proxy::{
    CheckOutcome, OpenProxy, Proxies, ProxyDeps, ProxyDialer, ProxyFailure, ProxyGateways, ProxyProtocol,
    ProxyRepository, ProxyRouting, RouteError,
};
use casement_domain::session::Sessions;
use casement_domain::telemetry::Event;
use casement_domain::{BrowserId, Clock as _, IdSource as _, NodeId};
use casement_egress::{Denial, Egress, Proxy, ProxyCheck, ProxyFault};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};
use url::Url;

use crate::browser_policy::{DeniedLog, denied_request};
use crate::system::System;
use casement_sealing::MasterKeys;

/// Converts a proxy to the egress crate's type.
pub(crate) fn to_egress_proxy(proxy: &OpenProxy) -> Option<Arc<Proxy>> {
    let protocol = match proxy.protocol {
        ProxyProtocol::Http => casement_egress::ProxyProtocol::Http,
        ProxyProtocol::Https => casement_egress::ProxyProtocol::Https,
        ProxyProtocol::Socks5 => casement_egress::ProxyProtocol::Socks5,
    };
    let place = (proxy.host.as_str(), proxy.port);
    let converted = Proxy::new(protocol, place, proxy.credentials.clone(), &proxy.bypass).ok()?;
    Some(Arc::new(match &proxy.ca_bundle {
        Some(bundle) => converted.with_trusted_certificates(bundle.certificates().to_vec()),
        None => converted,
    }))
}

/// Converts a fault to the domain's type.
fn failure(fault: ProxyFault) -> ProxyFailure {
    match fault {
        ProxyFault::Unreachable => ProxyFailure::Unreachable,
        ProxyFault::Timeout => ProxyFailure::Timeout,
        ProxyFault::Closed => ProxyFailure::Closed,
        ProxyFault::Reset => ProxyFailure::Reset,
        ProxyFault::Protocol => ProxyFailure::Protocol,
        ProxyFault::Tls => ProxyFailure::Tls,
        ProxyFault::Authentication => ProxyFailure::Authentication,
        ProxyFault::Unknown => ProxyFailure::Unknown,
    }
}

/// Checks proxies under the egress rules.
pub(crate) struct EgressProxyChecker {
    pub(crate) egress: Egress,
    /// A URL that answers with the address of its client.
    pub(crate) address_url: Option<Url>,
}

#[async_trait]
impl ProxyDialer for EgressProxyChecker {
    async fn check(&self, proxy: &OpenProxy, url: Option<Url>) -> CheckOutcome {
        let Some(proxy) = to_egress_proxy(proxy) else { return CheckOutcome::Unavailable(ProxyFailure::Unknown) };
        let has_url = url.is_some();
        match self.egress.check_proxy(&proxy, url.as_ref().or(self.address_url.as_ref())).await {
            ProxyCheck::Available(address) => CheckOutcome::Available(address),
            ProxyCheck::Unavailable(fault) => CheckOutcome::Unavailable(fault.map_or(ProxyFailure::Target, failure)),
            ProxyCheck::Blocked if has_url => CheckOutcome::Blocked,
            ProxyCheck::Blocked => {
                warn!("--proxy-check-url is not reachable under the egress rules; see --egress-allow");
                CheckOutcome::Unavailable(ProxyFailure::Target)
            }
        }
    }
}

/// The maximum number of failed requests that wait to be reported.
const MAX_UNREPORTED: usize = 64;
/// The minimum time between two reports of the same failure in a session, because a page sends many requests.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of reports of a session in that time, because a page can make each of its requests differ.
const MAX_REPORTS: usize = 10;

/// The reason why the egress sent no request on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestFault {
    /// The fault of the session's proxy.
    Proxy(ProxyFault),
    /// The network configuration of the session.
    Denied(DeniedRequest),
}

/// A failed request: the browser and the reason.
pub(crate) type FailedRequest = (String, RequestFault);

/// Returns an egress that reports the failed requests of browsers to the receiver, and the log of those that network
/// configurations refused.
pub(crate) fn reporting(egress: Egress) -> (Egress, mpsc::Receiver<FailedRequest>, DeniedLog) {
    let (failed, reported) = mpsc::channel(MAX_UNREPORTED);
    let (denied_log, also_failed) = (DeniedLog::default(), failed.clone());
    // If the queue is full, the next request reports the failure.
    let report = move |browser: &str, fault: ProxyFault| {
        drop(failed.try_send((browser.to_owned(), RequestFault::Proxy(fault))));
    };
    let log = denied_log.clone();
    let report_denied = move |browser: &str, denial: Denial| {
        let denied = denied_request(denial);
        log.note(browser, &denied);
        drop(also_failed.try_send((browser.to_owned(), RequestFault::Denied(denied))));
    };
    let egress = egress.with_proxy_down_callback(Arc::new(report)).with_denied_callback(Arc::new(report_denied));
    (egress, reported, denied_log)
}

/// The failures that were reported within [`REPORT_INTERVAL`], with their times.
#[derive(Default)]
struct ReportedFailures(HashMap<BrowserId, HashMap<RequestFault, Instant>>);

impl ReportedFailures {
    /// Returns whether a failure is to be reported, and notes that it is.
    fn admit(&mut self, browser: BrowserId, fault: &RequestFault, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < REPORT_INTERVAL;
        self.0.retain(|_, faults| {
            faults.retain(|_, at| is_recent(at));
            !faults.is_empty()
        });
        let faults = self.0.entry(browser).or_default();
        let is_admitted = faults.len() < MAX_REPORTS && !faults.contains_key(fault);
        if is_admitted {
            faults.insert(fault.clone(), now);
        }
        is_admitted
    }
}

/// Records failed requests in the telemetry of their sessions.
pub(crate) async fn report_failed_requests(mut failed: mpsc::Receiver<FailedRequest>, sessions: Sessions) {
    let mut reported = ReportedFailures::default();
    while let Some((name, fault)) = failed.recv().await {
        // A build's sandbox has no session.
        let Ok(browser) = name.parse::<BrowserId>() else { continue };
        if !reported.admit(browser, &fault, Instant::now()) {
            continue;
        }
        let event = match &fault {
            RequestFault::Proxy(fault) => Event::proxy_failed(System.now(), failure(*fault)),
            RequestFault::Denied(denied) => {
                Event::network_denied(System.now(), denied, &System.next().to_string().to_lowercase())
            }
        };
        if let Err(error) = sessions.note(browser, event).await {
            debug!(%browser, %error, "cannot record that a request of a session failed");
        }
    }
}

/// Returns the use cases.
pub(crate) fn use_cases(
    rows: Arc<dyn ProxyRepository>,
    keys: &MasterKeys,
    dialer: EgressProxyChecker,
    upstreams: Arc<ProxyGateways>,
    max: u32,
) -> Proxies {
    Proxies::new(ProxyDeps {
        proxies: rows,
        sealer: Arc::new(keys.clone()),
        dialer: Arc::new(dialer),
        upstreams,
        clock: Arc::new(System),
        ids: Arc::new(System),
        max,
    })
}

/// Restores the routes of adopted browsers, before their egress is opened again.
pub(crate) async fn restore(routing: &ProxyRouting, rows: &dyn BrowserRepository, node: NodeId) -> anyhow::Result<()> {
    for browser in rows.of_node(node).await? {
        if !browser.shape.directs_traffic() {
            continue;
        }
        match routing.send(browser.id, &browser.shape).await {
            Ok(()) => {}
            Err(RouteError::Store(error)) => {
                return Err(error).context("the proxies of running sessions cannot be read");
            }
            Err(error) => {
                warn!(browser = %browser.id, %error, "a session's proxy cannot be used; its browser has no network")
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(n: usize) -> RequestFault {
        RequestFault::Denied(DeniedRequest::new(format!("{n}.example"), 443, "CONNECT".to_owned()))
    }

    #[test]
    fn a_session_with_many_different_failures_has_few_reports_and_others_have_theirs() {
        let (one, other) = (BrowserId::from_ulid(1.into()), BrowserId::from_ulid(2.into()));
        let (mut reported, now) = (ReportedFailures::default(), Instant::now());
        let admitted = (0..100).filter(|n| reported.admit(one, &denied(*n), now)).count();
        assert_eq!(admitted, MAX_REPORTS);
        assert!(reported.admit(other, &denied(0), now), "another session");
        assert!(!reported.admit(other, &denied(0), now), "the same failure");
        assert!(reported.admit(other, &RequestFault::Proxy(ProxyFault::Tls), now), "another failure");
        assert!(reported.admit(one, &denied(0), now + REPORT_INTERVAL), "a later failure");
    }
}
