//! What goes on in the background: pools are kept full, spares warm, idle sessions ended, the store kept true.

mod apps;
mod audit;
mod figures;
mod housekeeping;
mod logins;
mod pools;
mod spares;
mod starts;
mod telemetry;

pub(crate) use apps::{AppWork, Attended};
pub(crate) use audit::{keep_audit, tend_trail};
pub(crate) use figures::PoolFigures;
pub(crate) use housekeeping::{Housekeeping, follow_browsers, hear};
pub(crate) use logins::{AuthNews, carry_logins, keep_logins};
pub(crate) use pools::{PoolBell, PoolLoop, run as fill_pools};
pub(crate) use spares::{Spares, run as keep_spares};
pub(crate) use starts::StartSlots;
pub(crate) use telemetry::keep_telemetry;
