//! The task that keeps the cloud's tables as the leases say.
//!
//! The calls of all nodes of an account count together, and a node that makes too many is refused. So the tables are
//! asked for once a minute, more often only while something is missing in them, and after a failure later each time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::difference::{Planned, difference};
use super::error_texts::ErrorTexts;
use super::record::RecordFile;
use super::take_back::{TakenBack, table_named, take_back_all};
use super::{Call, CloudError, CloudSettings, Interface, RouteTables, Table, View, WantedRoutes, Wish, aws};
use crate::backoff::{Backoff, jittered};
use crate::latest::send_if_new;

/// The shortest and the longest wait after a failure.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// While a table lacks a route to another node, it is asked for so many times as often,
const HASTE: u32 = 4;
/// in so many looks: after that the other node has no agent, or it has one that is refused.
const HASTY_LOOKS: u32 = 8;

/// Keeps the cloud's tables as wished, until no wish can come any more. Nothing is asked before the first wish.
pub(crate) fn start(
    settings: CloudSettings,
    network: String,
    wishes: watch::Receiver<Option<Wish>>,
) -> watch::Receiver<View> {
    let (seen, views) = watch::channel(View::default());
    tokio::spawn(async move {
        let cloud = aws::Ec2::new(settings.login.clone());
        let keeper = CloudKeeper {
            cloud,
            settings,
            network,
            view: View::default(),
            error_texts: ErrorTexts::default(),
            unsure: Vec::new(),
            hasty_looks: 0,
            whole_since: None,
        };
        keeper.run(wishes, &seen).await;
    });
    views
}

struct CloudKeeper<R> {
    cloud: R,
    settings: CloudSettings,
    network: String,
    view: View,
    error_texts: ErrorTexts,
    /// Calls that are recorded, and of which no answer has said yet that they have succeeded.
    unsure: Vec<Call>,
    /// The last looks, in a row, that found a way to be lacking.
    hasty_looks: u32,
    /// Since when all ways are in the tables.
    whole_since: Option<Instant>,
}

/// What the cloud says of this node.
#[derive(Debug)]
pub(super) struct CloudState {
    pub(super) interface: Interface,
    pub(super) tables: Vec<Table>,
    /// Tables in which something was made, and which are not to lead to this node any more. Those that are gone
    /// are not among them.
    former: Vec<Table>,
}

impl CloudState {
    /// Asks, where calls go now, and notes in the record which place that is.
    ///
    /// # Errors
    /// An answer is missing, or what is recorded was made elsewhere.
    pub(super) async fn ask(
        cloud: &mut impl RouteTables,
        wanted: &WantedRoutes,
        file: &mut RecordFile,
    ) -> Result<CloudState, CloudError> {
        let interface = cloud.interface(&wanted.addresses).await?;
        file.at(&cloud.place().await?, &interface)?;
        let tables = match &wanted.tables[..] {
            [] => vec![cloud.table_of(&interface).await?],
            names => cloud.tables(names).await?,
        };
        let mut former: Vec<Table> = Vec::new();
        let mut names: Vec<&String> = file.record.routes.iter().map(|made| &made.table).collect();
        names.sort();
        names.dedup();
        for name in names {
            if tables.iter().all(|table| table.id != *name) {
                former.extend(table_named(cloud, file, name).await?);
            }
        }
        Ok(CloudState { interface, tables, former })
    }

    /// A table in which something is or was to be; `None`: it is gone.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().chain(&self.former).find(|table| table.id == name)
    }
}

impl<R: RouteTables> CloudKeeper<R> {
    async fn run(mut self, mut wishes: watch::Receiver<Option<Wish>>, seen: &watch::Sender<View>) {
        let mut backoff = Backoff::between(WAIT_MIN, WAIT_MAX);
        let mut was_leaving = false;
        loop {
            let wish = wishes.borrow_and_update().clone();
            let is_leaving = wish == Some(Wish::Nothing);
            if is_leaving && !was_leaving && self.has_record() {
                // Other nodes go on sending by the table until they have followed the last lease.
                was_leaving = true;
                if wait(&mut wishes, wish, self.settings.period, false).await {
                    continue;
                }
                return;
            }
            was_leaving = is_leaving;
            let outcome = match &wish {
                None => Ok(()),
                Some(Wish::Nothing) => self.leave().await,
                Some(Wish::Routes(wanted)) => self.look(wanted).await,
            };
            self.view.unasked = outcome.as_ref().err().map(|error| self.error_texts.of(error));
            self.note_whole(wish.as_ref().filter(|_| outcome.is_ok()));
            send_if_new(seen, self.view.clone());
            let pause = match &outcome {
                Ok(()) if self.view.failed.is_empty() => {
                    self.error_texts.forget();
                    backoff = Backoff::between(WAIT_MIN, WAIT_MAX);
                    self.pause()
                }
                Ok(()) | Err(_) => backoff.next(),
            };
            // Whoever is refused for too many calls does not make another one because the leases have changed.
            let is_throttled = outcome.is_err_and(|error| error.is_throttled());
            if !wait(&mut wishes, wish, pause, is_throttled).await {
                return;
            }
        }
    }

    fn has_record(&self) -> bool {
        RecordFile::open(&self.settings.record, &self.network).is_ok_and(|file| !file.record.is_empty())
    }

    /// Notes whether all ways are in the tables, this node's and those of others, and for how long. `None`:
    /// that is not known.
    fn note_whole(&mut self, wish: Option<&Wish>) {
        let mut is_whole = false;
        if let Some(Wish::Routes(wanted)) = wish {
            let lacks_a_way = wanted.others.iter().any(|prefix| self.view.check_way(*prefix).is_err());
            self.hasty_looks = if lacks_a_way { self.hasty_looks.saturating_add(1) } else { 0 };
            is_whole = !lacks_a_way && self.view.check_own(wanted.own.iter().copied()).is_ok();
        }
        self.whole_since = self.whole_since.filter(|_| is_whole).or(is_whole.then(Instant::now));
        self.view.is_settled = self.whole_since.is_some_and(|since| since.elapsed() >= self.settings.period);
    }

    /// How long nothing is asked if all goes well.
    fn pause(&self) -> Duration {
        let is_hasty = (1..=HASTY_LOOKS).contains(&self.hasty_looks);
        jittered(if is_hasty { self.settings.period / HASTE } else { self.settings.period })
    }

    /// Takes back what was made for another backend than the network has now.
    async fn leave(&mut self) -> Result<(), CloudError> {
        self.hasty_looks = 0;
        let (repaired, repaired_total) = (std::mem::take(&mut self.view.repaired), self.view.repaired_total);
        self.view = View { repaired, repaired_total, ..View::default() };
        let mut file = RecordFile::open(&self.settings.record, &self.network)?;
        if file.record.is_empty() {
            return Ok(());
        }
        let taken = take_back_all(&self.cloud, &mut file).await;
        self.note_taken(taken)
    }

    /// Compares the tables with what is wanted, and makes them so.
    async fn look(&mut self, wanted: &WantedRoutes) -> Result<(), CloudError> {
        let mut file = RecordFile::open(&self.settings.record, &self.network)?;
        let state = CloudState::ask(&mut self.cloud, wanted, &mut file).await?;
        if let Some(copied) = file.set_aside()? {
            warn!("{copied}");
        }
        // The file has the place to which calls go before one is made.
        file.change(|_| {})?;
        let difference = difference(wanted, &state.interface, &state.tables, &file.record);
        self.view.interface = Some(state.interface.clone());
        self.view.tables.clone_from(&state.tables);
        self.view.failed = difference.refused;
        self.unsure.retain(|call| difference.calls.iter().any(|planned| planned.call == *call));
        for planned in difference.calls {
            if let Err(error) = self.act(&planned, &mut file).await {
                self.note_failure(error)?;
            }
        }
        let mut taken = TakenBack::default();
        for made in &difference.superfluous {
            taken.take_back_route(&mut self.cloud, &mut file, made, state.table(&made.table)).await;
        }
        self.note_taken(taken)
    }

    /// A failure of which the next call need not know.
    ///
    /// # Errors
    /// The next call had better be later.
    fn note_failure(&mut self, error: CloudError) -> Result<(), CloudError> {
        if error.is_throttled() || matches!(error, CloudError::Unanswered { .. }) {
            return Err(error);
        }
        let text = self.error_texts.of(&error);
        self.view.failed.push(text);
        Ok(())
    }

    fn note_taken(&mut self, taken: TakenBack) -> Result<(), CloudError> {
        if let Some(copied) = taken.copied {
            warn!("{copied}");
        }
        for call in taken.done {
            info!("taken back: {call}");
            self.note_done(&call);
        }
        taken.failed.into_iter().try_for_each(|error| self.note_failure(error))
    }

    /// Makes a call, recorded before it is made.
    async fn act(&mut self, planned: &Planned, file: &mut RecordFile) -> Result<(), CloudError> {
        let Planned { call, before } = planned;
        let known = file.record.clone();
        let is_repair = known.has(call) && !self.unsure.contains(call);
        file.change(|record| record.add(call, before.as_ref()))?;
        match self.cloud.call(call).await {
            Ok(()) => info!("done: {call}"),
            Err(error) if error.is_certain() => {
                file.change(|record| *record = known)?;
                return Err(self.explained(call, error));
            }
            Err(error) => {
                if !is_repair && !self.unsure.contains(call) {
                    self.unsure.push(call.clone());
                }
                return Err(error);
            }
        }
        self.unsure.retain(|unsure| unsure != call);
        self.note_done(call);
        if is_repair {
            warn!("repaired: {}", call.repaired());
            self.view.add_repair(call.repaired());
        }
        Ok(())
    }

    /// What is known of the cloud after a call that succeeded.
    fn note_done(&mut self, call: &Call) {
        let Some(interface) = &mut self.view.interface else { return };
        match call {
            Call::CheckSource { on, .. } => interface.checks_source = *on,
            Call::Create { .. } | Call::Replace { .. } | Call::Delete { .. } => {
                self.view.tables.iter_mut().for_each(|table| table.note(call, &interface.instance));
            }
        }
    }

    /// A table that is full is named with how many routes it has.
    fn explained(&self, call: &Call, error: CloudError) -> CloudError {
        let Call::Create { table, prefix, .. } = call else { return error };
        if !error.is("RouteLimitExceeded") {
            return error;
        }
        let known = self.view.tables.iter().find(|known| known.id == *table);
        let routes = known.map_or(0, |known| known.counted[usize::from(prefix.addr().is_ipv6())]);
        CloudError::Full { table: table.clone(), prefix: prefix.to_string(), routes }
    }
}

/// Waits for the next look; false if there will be none. What concerns the node itself is looked at at once, and other
/// nodes' leases within the pause: their own agents make their routes.
async fn wait(
    wishes: &mut watch::Receiver<Option<Wish>>,
    wish: Option<Wish>,
    pause: Duration,
    is_throttled: bool,
) -> bool {
    let until = Instant::now() + pause;
    loop {
        tokio::select! {
            () = sleep_until(until) => return true,
            changed = wishes.changed() => if changed.is_err() { return false },
        }
        let is_urgent = match (&wish, &*wishes.borrow()) {
            (Some(Wish::Routes(before)), Some(Wish::Routes(now))) => {
                (&before.own, &before.tables, &before.addresses) != (&now.own, &now.tables, &now.addresses)
            }
            (before, now) => before != now,
        };
        if is_urgent && !is_throttled {
            return true;
        }
    }
}
