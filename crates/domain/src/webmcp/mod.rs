//! Tools that pages offer to agents by WebMCP.

mod model;
mod ports;
mod service;

pub use model::{EmbeddedFrame, NewToolCall, PageTool, ToolHints, ToolResult, ToolStatus};
#[cfg(feature = "mocks")]
pub use ports::MockToolMachine;
pub use ports::ToolMachine;
pub use service::PageTools;
