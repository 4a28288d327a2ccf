//! The device by which messages of RDMA verbs come and go.

use std::sync::Arc;

use linux::RdmaName;
use linux::rdma::{VerbsDevice, VerbsWait};

use super::{Listen, ResponderConfig, ServeError};
use crate::MESSAGE_BYTES_MAX;

/// By what messages come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagesConfig {
    /// The RDMA device by its name.
    pub device: RdmaName,
    /// What a thread does until one comes. With [`super::Idle::Sleep`] it sleeps in any case.
    pub wait: VerbsWait,
}

/// The open device, and how messages are waited for.
#[derive(Debug, Clone)]
pub(super) struct Messages {
    pub(super) device: Arc<VerbsDevice>,
    pub(super) wait: VerbsWait,
    pub(super) turn: u32,
}

impl Messages {
    pub(super) fn open(config: &MessagesConfig) -> Result<Messages, ServeError> {
        Ok(Messages { device: VerbsDevice::open(&config.device)?, wait: config.wait, turn: 0 })
    }

    /// Whether threads poll for them, and none is woken.
    pub(super) fn are_polled(&self) -> bool {
        self.wait == VerbsWait::Polling
    }
}

/// Why messages cannot be answered as asked; `None`: they can.
pub(super) fn refused(config: &ResponderConfig) -> Option<String> {
    let at = config.listen.iter().find(|listen| matches!(listen, Listen::Verbs(_)));
    match (at, &config.messages) {
        (Some(at), None) => Some(format!("{at} needs the RDMA device by which messages come")),
        (None, Some(_)) => Some("an RDMA device is for messages: listen on verbs:ADDRESS:PORT".to_owned()),
        (Some(_), Some(_))
            if !config.echo
                && config.raw.request_bytes.max(config.raw.response_bytes) > MESSAGE_BYTES_MAX =>
        {
            Some(format!("a message has up to {MESSAGE_BYTES_MAX} bytes"))
        }
        _ => None,
    }
}
