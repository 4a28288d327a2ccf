//! The backend `aws-vpc`: the prefixes of pods are routes in a table of the cloud's, which leads to the
//! node that has them.
//!
//! Each agent keeps the routes to its own node and no others. On the node nothing is made: its packets take the default
//! route, and the cloud's router knows the rest. What was made there outlives the node's restart, so it is recorded in
//! a file that does, too (`record.rs`), before each call. It is taken back where it was made, and what is not to be
//! seen there is gone only if its network is.
//!
//! `RouteTables` is what a cloud has to offer; `aws` has it in the calls of Amazon EC2. What is to be done follows from
//! the leases and the tables alone (`difference.rs`). Nothing here waits for the kernel, and
//! the loop does not wait for the cloud.

mod aws;
mod difference;
mod error;
mod error_texts;
mod keep;
mod preview;
mod record;
mod table;
mod take_back;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use datapath::Addresses;
use ipnet::IpNet;

pub use self::aws::Login;
pub use self::error::CloudError;
pub(crate) use self::keep::start;
pub(crate) use self::preview::{Preview, preview};
pub use self::record::Copied;
pub(crate) use self::record::Record;
pub use self::table::{Call, Interface, Route, Table};
pub use self::take_back::{TakenBack, has_record, take_back};
pub use self::view::View;

/// The user's settings for the cloud.
#[derive(Debug, Clone)]
pub struct CloudSettings {
    /// The directory of the file in which is recorded what was made there. It has to outlive a restart of the machine:
    /// `/var/lib/hostgap/agent`.
    pub record: PathBuf,
    /// How often the tables are compared with what they should be.
    pub period: Duration,
    /// The most routes that a table may have: a quota of the account, which the cloud does not say.
    pub routes_max: usize,
    /// Where the calls go, and whose keys sign them.
    pub login: Login,
}

/// What the cloud is to have for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Nothing: the network has another backend. What was made before is taken back.
    Nothing,
    /// Routes to this node's pods, in the tables of the cloud.
    Routes(WantedRoutes),
}

/// The routes to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRoutes {
    /// In these tables; none: in that of the node's subnet.
    pub(crate) tables: Vec<String>,
    /// The node's addresses, by which its interface is found.
    pub(crate) addresses: Addresses,
    /// The prefixes of its pods.
    pub(crate) own: Vec<IpNet>,
    /// The prefixes of other nodes' pods.
    pub(crate) others: Vec<IpNet>,
}

/// A cloud's route tables.
///
/// Names are the cloud's own, and a route leads to the network interface of a virtual machine.
pub(crate) trait RouteTables {
    /// The name of this virtual machine, which no other one has or had.
    async fn machine(&mut self) -> Result<String, CloudError>;
    /// The network interface of this machine that has one of these addresses.
    async fn interface(&mut self, addresses: &Addresses) -> Result<Interface, CloudError>;
    /// The tables of these names. It is an error if one is not there.
    async fn tables(&mut self, names: &[String]) -> Result<Vec<Table>, CloudError>;
    /// The table of an interface's subnet.
    async fn table_of(&mut self, interface: &Interface) -> Result<Table, CloudError>;
    /// Whether the login sees a virtual network at all. If so, what is missing in it is gone,
    /// and not another account's.
    async fn sees(&mut self, vpc: &str) -> Result<bool, CloudError>;
    /// Makes a call that changes the cloud.
    async fn call(&mut self, call: &Call) -> Result<(), CloudError>;
    /// Where calls go, for the record: to take something back takes the same place.
    async fn place(&mut self) -> Result<CloudEndpoint, CloudError>;
    /// The same cloud with calls that go to another place.
    fn at(&self, place: &CloudEndpoint) -> Self;
}

/// The region, or the URL, to which calls go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloudEndpoint {
    /// The region of the cloud.
    pub(crate) region: String,
    /// A URL, if it is not the region's own.
    pub(crate) endpoint: Option<String>,
}
