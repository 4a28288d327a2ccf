//! What agents have made in the cloud for this node goes.

use std::collections::BTreeSet;
use std::path::Path;

use super::record::{Made, RecordFile};
use super::{Call, CloudError, CloudSettings, Interface, RouteTables, Table, aws};

/// What was taken back.
#[derive(Debug, Default)]
pub struct TakenBack {
    /// The calls that succeeded.
    pub done: Vec<Call>,
    /// What could not be done, and stays in the record.
    pub failed: Vec<CloudError>,
}

/// Whether an agent has made something in the cloud for this node that was not taken back.
///
/// # Errors
/// The record cannot be read.
pub fn has_record(directory: &Path, network: &str) -> Result<bool, CloudError> {
    Ok(!RecordFile::open(directory, network)?.record.is_empty())
}

/// Takes back what agents have made in the cloud for this node's network: its routes, and the source/destination check that
/// they turned off. A route that leads elsewhere by now is left alone.
///
/// # Errors
/// The record cannot be read.
pub async fn take_back(settings: &CloudSettings, network: &str) -> Result<TakenBack, CloudError> {
    let mut file = RecordFile::open(&settings.record, network)?;
    let mut taken = TakenBack::default();
    if !file.record.is_empty() {
        let login = settings.login.clone().at(&file.record.region, file.record.endpoint.as_deref());
        taken = take_back_all(&mut aws::Ec2::new(login), &mut file).await;
    }
    Ok(taken)
}

/// The same by any cloud.
pub(super) async fn take_back_all(cloud: &mut impl RouteTables, file: &mut RecordFile) -> TakenBack {
    let mut taken = TakenBack::default();
    let names: BTreeSet<String> = file.record.routes.iter().map(|made| made.table.clone()).collect();
    for name in names {
        match tables_of(cloud, &name).await {
            Ok(tables) => take_back_routes(cloud, file, &name, &tables, &mut taken).await,
            Err(error) => taken.failed.push(error),
        }
    }
    for interface in file.record.unchecked.clone() {
        let call = Call::CheckSource { interface: interface.clone(), on: true };
        let outcome = cloud.call(&call).await;
        let is_gone = outcome.as_ref().is_err_and(|error| error.is("InvalidNetworkInterfaceID.NotFound"));
        if is_gone || taken.note(outcome, call) {
            let changed = file.change(|record| record.unchecked.retain(|unchecked| *unchecked != interface));
            taken.failed.extend(changed.err());
        }
    }
    taken
}

/// A table, or none if it is gone.
async fn tables_of(cloud: &mut impl RouteTables, name: &str) -> Result<Vec<Table>, CloudError> {
    // By name they are found without an interface.
    let nobody = Interface {
        id: String::new(),
        instance: String::new(),
        subnet: String::new(),
        vpc: String::new(),
        checks_source: false,
    };
    match cloud.tables(&[name.to_owned()], &nobody).await {
        Err(error) if error.is("InvalidRouteTableID.NotFound") => Ok(Vec::new()),
        asked => asked,
    }
}

async fn take_back_routes(
    cloud: &mut impl RouteTables,
    file: &mut RecordFile,
    name: &str,
    tables: &[Table],
    taken: &mut TakenBack,
) {
    let all: Vec<Made> = file.record.routes.iter().filter(|made| made.table == name).cloned().collect();
    for made in all {
        let is_there = tables.iter().any(|table| {
            table.id == name && table.route(made.prefix).is_some_and(|route| route.target == made.interface)
        });
        if !is_there || take_back_route(cloud, &made, taken).await {
            let changed = file.change(|record| record.remove(&made.table, made.prefix));
            taken.failed.extend(changed.err());
        }
    }
}

/// A route goes, or leads again where it did. True if it is as before.
async fn take_back_route(cloud: &mut impl RouteTables, made: &Made, taken: &mut TakenBack) -> bool {
    let Made { table, prefix, before, .. } = made.clone();
    if let Some(interface) = before {
        let call = Call::Replace { table: table.clone(), prefix, interface };
        match cloud.call(&call).await {
            // What it led to was stopped, and has been deleted since.
            Err(error)
                if error.is("InvalidNetworkInterfaceID.NotFound")
                    || error.is("InvalidNetworkInterface.NotFound") => {}
            outcome => return taken.note(outcome, call),
        }
    }
    let call = Call::Delete { table, prefix };
    match cloud.call(&call).await {
        Err(error) if error.is("InvalidRoute.NotFound") => true,
        outcome => taken.note(outcome, call),
    }
}

impl TakenBack {
    /// True if the call succeeded.
    fn note(&mut self, outcome: Result<(), CloudError>, call: Call) -> bool {
        match outcome {
            Ok(()) => {
                self.done.push(call);
                true
            }
            Err(error) => {
                self.failed.push(error);
                false
            }
        }
    }
}
