//! What agents have made in the cloud for this node goes.

use std::collections::BTreeSet;
use std::path::Path;

use super::record::{Copied, Made, RecordFile};
use super::{Call, CloudError, CloudSettings, RouteTables, Table, aws};

/// The codes by which AWS says that what a route led to before can no longer be led to, or that there is no such route.
const NO_WAY_BACK: [&str; 4] = [
    "InvalidNetworkInterfaceID.NotFound",
    "InvalidNetworkInterface.NotFound",
    "InvalidRoute.NotFound",
    "InvalidParameterValue",
];

/// What was taken back.
#[derive(Debug, Default)]
pub struct TakenBack {
    /// The calls that succeeded.
    pub done: Vec<Call>,
    /// What could not be done, and stays in the record.
    pub failed: Vec<CloudError>,
    /// The record was a copy of another machine's, and nothing in it was touched.
    pub copied: Option<Copied>,
}

/// Whether an agent has made something in the cloud for this node that was not taken back.
///
/// # Errors
/// The record cannot be read.
pub fn has_record(directory: &Path, network: &str) -> Result<bool, CloudError> {
    Ok(!RecordFile::open(directory, network)?.record.is_empty())
}

/// Takes back what agents have made in the cloud for this node's network: its routes, and the source/destination check
/// that they turned off. A route that leads elsewhere by now is left alone. The calls go where the agents' went,
/// whatever the settings say.
///
/// # Errors
/// The record cannot be read.
pub async fn take_back(settings: &CloudSettings, network: &str) -> Result<TakenBack, CloudError> {
    let mut file = RecordFile::open(&settings.record, network)?;
    if file.record.is_empty() {
        return Ok(TakenBack::default());
    }
    Ok(take_back_all(&aws::Ec2::new(settings.login.clone()), &mut file).await)
}

/// The same by any cloud.
pub(super) async fn take_back_all(cloud: &impl RouteTables, file: &mut RecordFile) -> TakenBack {
    let cloud = &mut cloud.at(&file.record.place());
    let mut taken = TakenBack::default();
    match left_to_its_machine(cloud, file).await {
        Ok(copied) => taken.copied = copied,
        // Whose it is has to be known first.
        Err(error) => {
            taken.failed.push(error);
            return taken;
        }
    }
    let all = file.record.routes.clone();
    let names: BTreeSet<&String> = all.iter().map(|made| &made.table).collect();
    for name in names {
        match table_named(cloud, file, name).await {
            Ok(table) => {
                for made in all.iter().filter(|made| made.table == *name) {
                    taken.take_back_route(cloud, file, made, table.as_ref()).await;
                }
            }
            Err(error) => taken.failed.push(error),
        }
    }
    for interface in file.record.unchecked.clone() {
        taken.take_back_check(cloud, file, interface).await;
    }
    taken
}

/// Sets the record aside if it is a copy of another machine's.
async fn left_to_its_machine(
    cloud: &mut impl RouteTables,
    file: &mut RecordFile,
) -> Result<Option<Copied>, CloudError> {
    if file.record.machine.is_some() {
        file.belong_to(&cloud.machine().await?);
    }
    file.set_aside()
}

/// A table in which something was made; `None`: it is gone.
pub(super) async fn table_named(
    cloud: &mut impl RouteTables,
    file: &RecordFile,
    name: &str,
) -> Result<Option<Table>, CloudError> {
    let found = match cloud.tables(&[name.to_owned()]).await {
        Err(error) if error.is("InvalidRouteTableID.NotFound") => Vec::new(),
        answer => answer?,
    };
    let found = found.into_iter().find(|table| table.id == name);
    if found.is_none() && !cloud.sees(&file.record.vpc).await? {
        return Err(file.unseen(format!("route table {name}")));
    }
    Ok(found)
}

/// Makes the call that takes a route back; `None`: the route was gone. Where what it led to before is
/// gone, it is deleted.
async fn undo(cloud: &mut impl RouteTables, call: Call) -> Result<Option<Call>, CloudError> {
    let mut call = call;
    let mut outcome = cloud.call(&call).await;
    if let (Call::Replace { table, prefix, .. }, Err(error)) = (&call, &outcome)
        && NO_WAY_BACK.iter().any(|code| error.is(code))
    {
        call = Call::Delete { table: table.clone(), prefix: *prefix };
        outcome = cloud.call(&call).await;
    }
    match outcome {
        Err(error) if error.is("InvalidRoute.NotFound") => Ok(None),
        outcome => outcome.map(|()| Some(call)),
    }
}

impl TakenBack {
    /// A route goes, or leads again where it did, and leaves the record. `table` is `None` where that is gone.
    pub(super) async fn take_back_route(
        &mut self,
        cloud: &mut impl RouteTables,
        file: &mut RecordFile,
        made: &Made,
        table: Option<&Table>,
    ) {
        let outcome = match table.and_then(|table| made.taken_back_by(table)) {
            Some(call) => undo(cloud, call).await,
            None => Ok(None),
        };
        match outcome {
            Ok(done) => {
                self.done.extend(done);
                let changed = file.change(|record| record.remove(&made.table, made.prefix));
                self.failed.extend(changed.err());
            }
            Err(error) => self.failed.push(error),
        }
    }

    /// The check of an interface is on again, unless the interface is gone.
    async fn take_back_check(
        &mut self,
        cloud: &mut impl RouteTables,
        file: &mut RecordFile,
        interface: String,
    ) {
        let call = Call::CheckSource { interface: interface.clone(), on: true };
        match cloud.call(&call).await {
            Ok(()) => self.done.push(call),
            Err(error) if error.is("InvalidNetworkInterfaceID.NotFound") => {
                match cloud.sees(&file.record.vpc).await {
                    Ok(true) => {}
                    Ok(false) => return self.failed.push(file.unseen(format!("interface {interface}"))),
                    Err(error) => return self.failed.push(error),
                }
            }
            Err(error) => return self.failed.push(error),
        }
        let changed = file.change(|record| record.unchecked.retain(|unchecked| *unchecked != interface));
        self.failed.extend(changed.err());
    }
}
