//! Route tables of a cloud, and the calls that change them.

use std::fmt;

use ipnet::IpNet;

use super::error::RAISE_QUOTA;

/// A network interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name in the cloud: `eni-0123456789abcdef0`.
    pub id: String,
    /// The machine that has it.
    pub instance: String,
    /// Its subnet, and the network of that.
    pub subnet: String,
    /// The virtual network of the subnet.
    pub vpc: String,
    /// The account that has it, if the cloud says so.
    pub account: Option<String>,
    /// Whether the cloud drops packets there that are not from or for the interface's own addresses.
    pub checks_source: bool,
}

/// A route table, as far as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name in the cloud: `rtb-0123456789abcdef0`.
    pub id: String,
    /// Its routes to prefixes.
    pub routes: Vec<Route>,
    /// How many routes count for the quota of a table, for IPv4 and for IPv6: those that nothing has propagated.
    pub counted: [usize; 2],
}

/// A route of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The destinations that the route is for.
    pub prefix: IpNet,
    /// The interface or gateway to which it leads.
    pub target: String,
    /// The machine whose interface that is.
    pub instance: Option<String>,
    /// It leads nowhere: what it led to is gone or stopped.
    pub is_dead: bool,
    /// Somebody has put it there, and could take it away: it is neither the network's own nor propagated by a gateway.
    pub is_static: bool,
}

/// What changes something in the cloud. Its text is the command of AWS's own command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A route that the table does not have is added.
    #[expect(missing_docs, reason = "the names say it")]
    Create { table: String, prefix: IpNet, interface: String },
    /// A route leads elsewhere from now on.
    #[expect(missing_docs, reason = "the names say it")]
    Replace { table: String, prefix: IpNet, interface: String },
    /// A route is removed.
    #[expect(missing_docs, reason = "the names say it")]
    Delete { table: String, prefix: IpNet },
    /// An interface sends and takes packets of other addresses than its own, or, with `on`, no more.
    #[expect(missing_docs, reason = "the names say it")]
    CheckSource { interface: String, on: bool },
}

impl Table {
    /// The route to a prefix that somebody has put there; else any.
    pub fn route(&self, prefix: IpNet) -> Option<&Route> {
        self.static_route(prefix).or_else(|| self.routes.iter().find(|route| route.prefix == prefix))
    }

    /// The route to a prefix that somebody has put there, of which there is one at most.
    pub(crate) fn static_route(&self, prefix: IpNet) -> Option<&Route> {
        self.routes.iter().find(|route| route.is_static && route.prefix == prefix)
    }

    /// What is to be said of it if it is nearly full, where `routes_max` is the quota of a table.
    pub(crate) fn warning(&self, routes_max: usize) -> Option<String> {
        let (count, family) =
            self.counted.iter().copied().zip(["IPv4", "IPv6"]).max_by_key(|(count, _)| *count)?;
        // One that has more than that has another limit.
        let is_near = count * 10 >= routes_max.saturating_mul(9) && count <= routes_max;
        is_near.then(|| {
            format!(
                "it has {count} {family} routes of {routes_max}, and each node takes one; {RAISE_QUOTA}, and give the agent the \
                 new one as --cloud-routes-max"
            )
        })
    }

    /// What the table is after a call that succeeded, without asking for it: right after a change the cloud may still
    /// answer with what was before.
    pub(crate) fn note(&mut self, call: &Call, instance: &str) {
        let (Call::Create { table, prefix, .. }
        | Call::Replace { table, prefix, .. }
        | Call::Delete { table, prefix }) = call
        else {
            return;
        };
        if *table != self.id {
            return;
        }
        let before = self.routes.len();
        self.routes.retain(|route| !(route.is_static && route.prefix == *prefix));
        let count = &mut self.counted[usize::from(prefix.addr().is_ipv6())];
        *count = count.saturating_sub(before - self.routes.len());
        if let Call::Create { interface, .. } | Call::Replace { interface, .. } = call {
            *count += 1;
            self.routes.push(Route {
                prefix: *prefix,
                target: interface.clone(),
                instance: Some(instance.to_owned()),
                is_dead: false,
                is_static: true,
            });
        }
    }
}

impl Route {
    /// Where it leads, in words.
    pub(crate) fn leads_to(&self) -> String {
        match &self.instance {
            Some(instance) => format!("{} of {instance}", self.target),
            None => self.target.clone(),
        }
    }

    /// Whether it leads to an interface of a machine, and not to a gateway.
    pub(crate) fn is_to_interface(&self) -> bool {
        self.target.starts_with("eni-")
    }
}

impl Call {
    /// The call's name, which a role has to allow.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Call::Create { .. } => "CreateRoute",
            Call::Replace { .. } => "ReplaceRoute",
            Call::Delete { .. } => "DeleteRoute",
            Call::CheckSource { .. } => "ModifyNetworkInterfaceAttribute",
        }
    }

    /// What was no longer so, if it had been made before.
    pub(crate) fn repaired(&self) -> String {
        match self {
            Call::Create { table, prefix, .. } => format!("route {prefix} in route table {table} was gone"),
            Call::Replace { table, prefix, .. } => {
                format!("route {prefix} in route table {table} led elsewhere")
            }
            Call::Delete { table, prefix } => format!("route {prefix} in route table {table} was there"),
            Call::CheckSource { interface, .. } => {
                format!("the source/destination check of {interface} was on")
            }
        }
    }

    /// What it does, after "could not".
    pub(crate) fn attempt(&self) -> String {
        match self {
            Call::Create { table, prefix, .. } => format!("add {prefix} to route table {table}"),
            Call::Replace { table, prefix, .. } => format!("replace {prefix} in route table {table}"),
            Call::Delete { table, prefix } => format!("delete {prefix} from route table {table}"),
            Call::CheckSource { interface, on } => {
                format!("turn the source/destination check of {interface} {}", if *on { "on" } else { "off" })
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = |prefix: &IpNet| match prefix {
            IpNet::V4(_) => format!("--destination-cidr-block {prefix}"),
            IpNet::V6(_) => format!("--destination-ipv6-cidr-block {prefix}"),
        };
        match self {
            Call::Create { table, prefix, interface } => {
                let to = to(prefix);
                write!(
                    f,
                    "aws ec2 create-route --route-table-id {table} {to} --network-interface-id {interface}"
                )
            }
            Call::Replace { table, prefix, interface } => {
                let to = to(prefix);
                write!(
                    f,
                    "aws ec2 replace-route --route-table-id {table} {to} --network-interface-id {interface}"
                )
            }
            Call::Delete { table, prefix } => {
                write!(f, "aws ec2 delete-route --route-table-id {table} {}", to(prefix))
            }
            Call::CheckSource { interface, on } => {
                let flag = if *on { "--source-dest-check" } else { "--no-source-dest-check" };
                write!(
                    f,
                    "aws ec2 modify-network-interface-attribute --network-interface-id {interface} {flag}"
                )
            }
        }
    }
}
