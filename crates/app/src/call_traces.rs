//! Traces of calls, by the port of the HTTP layer.

use casement_http::CallTracing;
use casement_telemetry::traces;
use tracing::Span;

/// Traces calls with the layer that the log is set up with.
pub(crate) struct CallTraces;

impl CallTracing for CallTraces {
    fn begin(&self, span: &Span, method: &str, traceparent: Option<&str>, tracestate: Option<&str>) -> Option<String> {
        traces::begin(span, method, traceparent, tracestate)
    }

    fn end(&self, span: &Span, method: &str, route: &str, status: u16) {
        traces::end(span, method, route, status);
    }
}
