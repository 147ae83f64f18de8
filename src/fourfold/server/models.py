"""The models that the server serves besides streams: one entry for each."""

from __future__ import annotations

from fourfold.server.blobs import BlobRoutes
from fourfold.server.branches import BranchRoutes
from fourfold.server.find import FindRoutes
from fourfold.server.graph_feed import GraphFeedRoutes
from fourfold.server.graph_sync import GraphSyncRoutes
from fourfold.server.graph_values import GraphValueRoutes
from fourfold.server.graph_walks import GraphWalkRoutes
from fourfold.server.graphs import GraphRoutes, OpenGraphs
from fourfold.server.jobs import Jobs
from fourfold.server.memory import MemoryRoutes
from fourfold.server.open_sessions import OpenSessions
from fourfold.server.open_spaces import OpenSpaces
from fourfold.server.pipeline_routes import PipelineRoutes
from fourfold.server.routes import RouteGroup
from fourfold.server.session_bundles import SessionBundles
from fourfold.server.session_feeds import SessionFeeds
from fourfold.server.session_reads import SessionReads
from fourfold.server.session_retention import SessionRetention
from fourfold.server.session_search import SessionSearchRoutes
from fourfold.server.session_transcripts import SessionTranscripts
from fourfold.server.sessions import SessionRoutes
from fourfold.server.space_reads import SpaceReads
from fourfold.server.space_search import SpaceSearch
from fourfold.server.spaces import SpaceRoutes
from fourfold.server.sql import SqlRoutes
from fourfold.server.store_routes import StoreRoutes, backups_folder
from fourfold.server.uploads import UploadRoutes, uploads_folder
from fourfold.server.watches import WatchRoutes
from fourfold.server.workers import Workers
from fourfold.store import Store


def model_routes(store: Store, workers: Workers) -> tuple[RouteGroup, ...]:
    """Return the routes of every model of a store, except those of streams."""
    spaces = OpenSpaces(store, workers)
    graphs = OpenGraphs(store, workers)
    backups = backups_folder(store.root, store.settings)
    jobs = Jobs(store, spaces, backups)
    sessions = OpenSessions(store, workers)
    return (
        SpaceRoutes(store, workers, spaces),
        SpaceReads(workers, spaces),
        SpaceSearch(workers, spaces),
        FindRoutes(workers, spaces),
        MemoryRoutes(workers, spaces),
        BranchRoutes(workers, spaces),
        WatchRoutes(workers, spaces),
        BlobRoutes(workers, spaces),
        GraphRoutes(workers, graphs),
        GraphWalkRoutes(workers, graphs),
        GraphValueRoutes(workers, graphs),
        GraphFeedRoutes(workers, graphs),
        GraphSyncRoutes(workers, graphs),
        StoreRoutes(store, workers, jobs, backups),
        PipelineRoutes(store, workers),
        UploadRoutes(uploads_folder(store.root), workers),
        SessionRoutes(workers, sessions),
        SessionReads(workers, sessions),
        SessionFeeds(workers, sessions),
        SessionBundles(workers, sessions),
        SessionRetention(workers, sessions),
        SessionTranscripts(workers, sessions),
        SessionSearchRoutes(workers, sessions),
        SqlRoutes(store),
    )
