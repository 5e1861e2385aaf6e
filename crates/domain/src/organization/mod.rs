//! The organization: the owner of everything in the installation, with its limits.

mod limits;
mod model;
mod ports;

pub use limits::{
    CapacityRequest, Caps, Limit, LimitExceeded, OrganizationUsage, Usage, admit, admit_on_node, admit_one, beyond,
};
pub use model::{FirstStart, Organization, User};
#[cfg(feature = "mocks")]
pub use ports::MockOrganizationRepository;
pub use ports::OrganizationRepository;
