/* The engine's times against SimGrid, whose solver for shared links is not ours.
 *
 * Random schedules are built once for the engine and once as a graph of SimGrid
 * activities. What the two call differently:
 *
 *   engine                       SimGrid
 *   host thread issues a task    an Exec; they follow each other in a chain
 *   blocking task                one more predecessor of the next issue
 *   task before on a queue       one more predecessor
 *   work_s                       an Exec on a core of its own
 *   flow_bytes                   a Comm to a host of its own, over the route's links
 *   limit_gbs                    one more link, which no other flow crosses
 *
 * Weights other than 1 are left out: SimGrid has them for whole flows only. */
#include <stdio.h>

#ifndef HAVE_SIMGRID

int main(void)
{
    puts("skipped: built without SimGrid");
    return 77;
}

#else

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <simgrid/s4u.hpp>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include "sim/engine.h"
}

namespace sg4 = simgrid::s4u;

static const unsigned GRAPHS = 300;
static const double TOLERANCE_RATIO = 1e-3;
static const double SPEED_FLOPS = 1e9; /* of each core */

struct graph {
    std::vector<engine_task> tasks;
    std::vector<uint32_t> dependencies;
    std::vector<double> link_gbs;
    std::vector<engine_route> routes;
    std::vector<sg4::ActivityPtr> last; /* of each task: its end is the task's end */
    double end_s;                       /* of everything, by the engine */
    std::vector<double> ends_s;         /* of each task, by the engine */
};

/* ---- random graphs ---- */

/* splitmix64: the same numbers with every library. */
class generator
{
  public:
    explicit generator(uint64_t seed) : state(seed)
    {
    }

    unsigned between(unsigned least, unsigned most)
    {
        return least + (unsigned)((next() >> 32) * (most - least + 1) >> 32);
    }

    bool happens(unsigned percent)
    {
        return between(0, 99) < percent;
    }

    double uniform(double least, double most)
    {
        return least + (most - least) * (double)(next() >> 11) / 9007199254740992.0;
    }

  private:
    uint64_t state;

    uint64_t next()
    {
        uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        return z ^ z >> 31;
    }
};

/* Routes are random sets of links. What two directions share, a duplex limit, is one more
 * link that both cross. */
static void make_links(graph &g, generator &random)
{
    unsigned links = random.between(1, 6), routes = random.between(1, 8);

    for (unsigned l = 0; l < links; l++)
        g.link_gbs.push_back(random.uniform(0.5, 8));
    for (unsigned r = 0; r < routes; r++) {
        engine_route route = {};
        std::set<unsigned> crossed;

        for (unsigned l = random.between(1, 4); l > 0; l--)
            crossed.insert(random.between(0, links - 1));
        for (unsigned link : crossed) {
            route.weights[route.link_count] = 1;
            route.links[route.link_count++] = (uint16_t)link;
        }
        if (random.happens(30))
            route.limit_gbs = random.uniform(0.2, 4);
        g.routes.push_back(route);
    }
}

static graph make_graph(uint64_t seed)
{
    generator random(seed);
    unsigned tasks = random.between(20, 200), queues = random.between(1, 8);
    unsigned flow_percent = random.between(10, 60), blocking_percent = random.between(0, 10);
    double issue_s =
        random.happens(50) ? 0.01 : 0.5; /* a host that keeps up, and one that may not */
    graph g = {};

    make_links(g, random);
    for (unsigned i = 0; i < tasks; i++) {
        engine_task task = {};
        std::set<uint32_t> dependencies;

        task.issue_s = random.uniform(0.1, 1) * issue_s;
        task.work_s = random.happens(10) ? 0 : random.uniform(0.05, 2);
        task.queues = UINT64_C(1) << random.between(0, queues - 1);
        if (random.happens(15))
            task.queues |= UINT64_C(1) << random.between(0, queues - 1);
        task.route = ENGINE_NO_ROUTE;
        if (random.happens(flow_percent)) {
            task.flow_bytes = std::floor(random.uniform(0.1e9, 6e9));
            task.route = (uint16_t)random.between(0, (unsigned)g.routes.size() - 1);
        }
        task.blocking = random.happens(blocking_percent);
        for (unsigned d = random.between(0, 2); d > 0 && i > 0; d--)
            dependencies.insert(random.between(i > 30 ? i - 30 : 0, i - 1));
        task.dependency_first = (uint32_t)g.dependencies.size();
        task.dependency_count = (uint32_t)dependencies.size();
        g.dependencies.insert(g.dependencies.end(), dependencies.begin(), dependencies.end());
        g.tasks.push_back(task);
    }
    return g;
}

/* ---- by the engine ---- */

static bool run_engine(graph &g)
{
    struct error err = {};
    engine_schedule *schedule = engine_schedule_new(
        g.tasks.data(), g.tasks.size(), g.dependencies.data(), g.dependencies.size(), &err);
    struct engine *engine =
        engine_new(g.link_gbs.data(), g.link_gbs.size(), g.routes.data(), g.routes.size(), &err);
    bool ok = schedule != NULL && engine != NULL && engine_run(engine, schedule, &err) == 0 &&
              engine_finish(engine, &err) == 0;

    if (ok) {
        size_t count;
        const double *ends = engine_last_ends(engine, &count);

        g.ends_s.assign(ends, ends + count);
        g.end_s = engine_time_s(engine);
    } else {
        fprintf(stderr, "the engine refuses a graph: %s\n", err.text);
    }
    engine_free(engine);
    engine_schedule_free(schedule);
    return ok;
}

/* ---- by SimGrid ---- */

class simgrid_graph
{
  public:
    explicit simgrid_graph(graph &graph_of) : g(graph_of), zone(sg4::create_full_zone("zone"))
    {
        cores = zone->create_host("cores", SPEED_FLOPS)->set_core_count(1000);
        for (size_t l = 0; l < g.link_gbs.size(); l++)
            links.push_back(make_link("link" + std::to_string(l), g.link_gbs[l]));
        for (size_t i = 0; i < g.tasks.size(); i++)
            make_task(i);
        zone->seal();
    }

    void start()
    {
        for (const sg4::ActivityPtr &activity : activities)
            activity->vetoable_start();
    }

  private:
    graph &g;
    sg4::NetZone *zone;
    sg4::Host *cores;
    std::vector<sg4::Link *> links;
    std::vector<sg4::ActivityPtr> activities;
    sg4::ExecPtr last_issue;

    sg4::Link *make_link(const std::string &name, double gbs)
    {
        return zone->create_link(name, gbs * 1e9)
            ->set_latency(0.0)
            ->set_sharing_policy(sg4::Link::SharingPolicy::SHARED)
            ->seal();
    }

    sg4::ExecPtr make_exec(double time_s)
    {
        sg4::ExecPtr exec = sg4::Exec::init();

        exec->set_flops_amount(time_s * SPEED_FLOPS)->set_host(cores);
        activities.push_back(exec);
        return exec;
    }

    sg4::CommPtr make_comm(size_t index)
    {
        const engine_task &task = g.tasks[index];
        const engine_route &route = g.routes[task.route];
        std::string suffix = std::to_string(index);
        sg4::Host *to = zone->create_host("to" + suffix, SPEED_FLOPS);
        std::vector<sg4::LinkInRoute> crossed;

        for (uint32_t l = 0; l < route.link_count; l++)
            crossed.emplace_back(links[route.links[l]]);
        if (route.limit_gbs > 0)
            crossed.emplace_back(make_link("limit" + suffix, route.limit_gbs));
        zone->add_route(cores->get_netpoint(), to->get_netpoint(), nullptr, nullptr, crossed,
                        false);
        sg4::CommPtr comm = sg4::Comm::sendto_init(cores, to);
        comm->set_payload_size((uint64_t)task.flow_bytes);
        activities.push_back(comm);
        return comm;
    }

    /* What must have ended before a task starts, the issue of it aside. */
    std::set<size_t> predecessors(size_t index)
    {
        const engine_task &task = g.tasks[index];
        std::set<size_t> found;

        for (uint32_t d = 0; d < task.dependency_count; d++)
            found.insert(g.dependencies[task.dependency_first + d]);
        for (uint64_t left = task.queues; left != 0; left &= left - 1) {
            uint64_t queue = left & ~(left - 1);

            for (size_t before = index; before-- > 0;) {
                if (g.tasks[before].queues & queue) {
                    found.insert(before);
                    break;
                }
            }
        }
        return found;
    }

    void make_task(size_t index)
    {
        const engine_task &task = g.tasks[index];
        sg4::ExecPtr issue = make_exec(task.issue_s), work = make_exec(task.work_s);

        if (last_issue)
            last_issue->add_successor(issue);
        if (index > 0 && g.tasks[index - 1].blocking)
            follow(index - 1, issue);
        issue->add_successor(work);
        for (size_t before : predecessors(index))
            follow(before, work);
        last_issue = issue;
        g.last.push_back(work);
        if (task.flow_bytes > 0) {
            sg4::CommPtr comm = make_comm(index);

            work->add_successor(comm);
            g.last.back() = comm;
        }
    }

    void follow(size_t before, const sg4::ActivityPtr &activity)
    {
        sg4::ActivityPtr last = g.last[before];

        if (auto *comm = dynamic_cast<sg4::Comm *>(last.get()))
            comm->add_successor(activity);
        else
            static_cast<sg4::Exec *>(last.get())->add_successor(activity);
    }
};

/* ---- the comparison ---- */

struct deviation {
    bool compared;
    double end_ratio, task_ratio; /* of the end of everything, and of the worst task */
};

static double deviation_ratio(double engine_s, double simgrid_s)
{
    return std::fabs(engine_s - simgrid_s) / std::fmax(simgrid_s, 1e-9);
}

static deviation compare(const graph &g)
{
    deviation found = {true, 0, 0};
    double end_s = 0;

    for (size_t i = 0; i < g.tasks.size(); i++) {
        double finish_s = g.last[i]->get_finish_time();

        if (g.last[i]->get_state() != sg4::Activity::State::FINISHED)
            found.compared = false;
        found.task_ratio = std::fmax(found.task_ratio, deviation_ratio(g.ends_s[i], finish_s));
        end_s = std::fmax(end_s, finish_s);
    }
    found.end_ratio = deviation_ratio(g.end_s, end_s);
    return found;
}

static deviation simulate(uint64_t seed)
{
    graph g = make_graph(seed);
    char program[] = "test_simgrid", log[] = "--log=root.threshold:warning";
    char *arguments[] = {program, log, NULL};
    int argument_count = 2;

    if (!run_engine(g))
        return deviation();
    sg4::Engine simgrid(&argument_count, arguments);
    for (const char *setting :
         {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0"})
        sg4::Engine::set_config(setting);
    simgrid_graph built(g);
    built.start();
    simgrid.run();
    return compare(g);
}

/* A process can hold one simulation of SimGrid, so each graph has a process of its own. */
static deviation simulate_apart(uint64_t seed)
{
    deviation found = {};
    int ends[2];
    pid_t child;

    fflush(stdout);
    if (pipe(ends) != 0)
        return found;
    child = fork();
    if (child == 0) {
        found = simulate(seed);
        fflush(stderr);
        _exit(write(ends[1], &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &found, sizeof found) != (ssize_t)sizeof found)
        found = deviation();
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return found;
}

int main(void)
{
    double worst_end = 0, worst_task = 0;
    unsigned failed = 0;

    for (unsigned seed = 0; seed < GRAPHS; seed++) {
        deviation found = simulate_apart(seed);

        worst_end = std::fmax(worst_end, found.end_ratio);
        worst_task = std::fmax(worst_task, found.task_ratio);
        if (found.compared && found.end_ratio <= TOLERANCE_RATIO &&
            found.task_ratio <= TOLERANCE_RATIO)
            continue;
        failed++;
        if (found.compared)
            printf("graph %u: its end deviates by %.3g, its worst task by %.3g\n", seed,
                   found.end_ratio, found.task_ratio);
        else
            printf("graph %u: does not come to its end\n", seed);
    }
    printf("%u graphs, %u failed: ends of graphs deviate by at most %.3g, of tasks by %.3g; "
           "%.3g is allowed\n",
           GRAPHS, failed, worst_end, worst_task, TOLERANCE_RATIO);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
