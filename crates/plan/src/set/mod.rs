//! Settings: registers of the kernel that a step can set. A new one is a file here with a [`Register`], and a row of
//! the list at the end of this one.

mod attribute;
mod debug;
mod delays;
mod function;
mod hash;
mod indirection;
mod interrupt;
mod link;
mod module;
mod mtu;
mod nic;
mod port;
mod qdisc;
mod queue;
mod queues;
mod register;
mod route;
mod sysctl;
mod wireguard;

use linux::IfName;
use serde::{Deserialize, Serialize};

use crate::Step;
pub use attribute::SetLinkAttribute;
pub use debug::SetDebug;
pub use function::SetFunction;
pub use hash::SetRssHash;
pub use indirection::SetIndirection;
pub use interrupt::SetIrqCpus;
pub use link::{SetGsoMaxSegs, SetLinkMaster, SetLinkUp};
pub use module::SetModule;
pub use mtu::SetLinkMtu;
pub use nic::SetNic;
pub use port::SetPortFlag;
pub use qdisc::SetRootQdisc;
pub use queue::{SetQueueCpus, SetQueueFlows};
pub use queues::QueueState;
pub(crate) use register::{Along, At, Held, Register, Times, Undoing};
pub use route::SetRouteMetric;
pub use sysctl::SetSysctl;
pub(crate) use sysctl::is_about_code;
pub use wireguard::{SetWireGuard, WireGuardEnd};

/// What the register of a setting held, before a step or after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RegisterState(pub(crate) AnyHeld);

/// A register whose state is kept in journals.
pub(crate) trait JournaledRegister: Register {
    /// The link to which it belongs. Undo finds that by the index it had, not by its name.
    fn link(&self) -> Option<&IfName>;

    /// As a journal keeps it.
    fn keep(held: Held<Self>) -> AnyHeld;

    /// `None` for the state of another register.
    fn kept(any: &AnyHeld) -> Option<&Held<Self>>;
}

/// What is done with the register of a setting, the same for all.
pub(crate) trait RegisterVisitor<'s> {
    /// What comes of it.
    type Seen;

    fn see<R: JournaledRegister>(self, register: &'s R) -> Self::Seen;
}

/// Makes the enum of all settings and that of what their registers held, with the names that journals and plans in
/// files have for them.
macro_rules! registers {
    ($($name:ident: $register:ident $(of $link:ident)? = $word:literal $(formerly $old:literal)?,)*) => {
        /// A setting: a register of the kernel, and what it is to hold.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Set {
            $(
                #[doc = concat!("As [`", stringify!($register), "`] says.")]
                #[serde(rename = $word $(, alias = $old)?)]
                $name($register),
            )*
        }

        /// What the register of one of the settings held.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) enum AnyHeld {
            $(#[serde(rename = $word $(, alias = $old)?)] $name(Held<$register>),)*
        }

        impl Set {
            /// Shows its register to a visitor, whichever it is.
            pub(crate) fn show<'s, V: RegisterVisitor<'s>>(&'s self, visitor: V) -> V::Seen {
                match self {
                    $(Set::$name(register) => visitor.see(register),)*
                }
            }
        }

        $(
            impl JournaledRegister for $register {
                fn link(&self) -> Option<&IfName> {
                    let links: &[&IfName] = &[$(&self.$link)?];
                    links.first().copied()
                }

                fn keep(held: Held<$register>) -> AnyHeld {
                    AnyHeld::$name(held)
                }

                fn kept(any: &AnyHeld) -> Option<&Held<$register>> {
                    if let AnyHeld::$name(held) = any { Some(held) } else { None }
                }
            }

            impl From<$register> for Step {
                fn from(register: $register) -> Step {
                    Step::Set(Set::$name(register))
                }
            }
        )*
    };
}

registers! {
    LinkUp: SetLinkUp of link = "set_link_up",
    LinkMtu: SetLinkMtu of link = "set_link_mtu",
    LinkMaster: SetLinkMaster of link = "set_link_master",
    PortFlag: SetPortFlag of link = "set_port_flag" formerly "set_hairpin",
    Sysctl: SetSysctl = "set_sysctl",
    QueueCpus: SetQueueCpus of link = "set_queue_cpus",
    QueueFlows: SetQueueFlows of link = "set_queue_flows",
    RouteMetric: SetRouteMetric of link = "set_route_metric",
    GsoMaxSegs: SetGsoMaxSegs of link = "set_gso_max_segs",
    RootQdisc: SetRootQdisc of link = "set_root_qdisc",
    Nic: SetNic of link = "set_nic",
    Indirection: SetIndirection of link = "set_indirection",
    RssHash: SetRssHash of link = "set_rss_hash",
    WireGuard: SetWireGuard of link = "set_wireguard",
    LinkAttribute: SetLinkAttribute of link = "set_link_attribute",
    Debug: SetDebug = "set_debug",
    Module: SetModule = "set_module",
    IrqCpus: SetIrqCpus = "set_irq_cpus",
    Function: SetFunction of link = "set_function",
}
